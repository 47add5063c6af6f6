"""Who is who: mechanisms of authentication and how credentials are written; pure."""
