"""End-to-end audit by counts: producers count what was acknowledged, `kraft audit` compares it with what is there.

Pure. `kraft produce --audit` and other producers (`examples/audited_producer.py`) count, `kraft/cli/audit` compares.
"""
