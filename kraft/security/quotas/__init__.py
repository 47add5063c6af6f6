"""How much somebody may take: rates, whose they are, and what follows when one is exceeded. Pure; time is passed in."""
