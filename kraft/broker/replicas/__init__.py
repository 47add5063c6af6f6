"""The replicas of this broker: what the metadata makes of them, their logs, their followers and leaders."""
