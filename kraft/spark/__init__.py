"""The Spark connector: pulls from the partition leaders, decodes to Arrow columns.

    spark.read.format("kraft").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "t")

Knows the wire protocol and the record batch format, nothing of the server. It runs in Spark's Python
workers, not in a node: blocking sockets, real time.
"""
