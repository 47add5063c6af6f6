"""The coordinators of this broker: shards of internal topics over its replicas."""
