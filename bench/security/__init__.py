"""What security costs: TLS, the authorizer and quotas, authentications, connections that only stand."""
