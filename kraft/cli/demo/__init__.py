"""The main job, start to end: cluster, stream, killed leader, Spark, audit. See `kraft.cli.demo.run`."""
