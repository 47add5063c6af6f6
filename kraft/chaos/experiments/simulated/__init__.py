"""The simulated world of experiments: a file becomes a scenario, its method strikes as written, and the run's evidence
is what the real world would bring home. `play` is the way in.
"""

from kraft.chaos.experiments.simulated.play import play, scenario_of

__all__ = ["play", "scenario_of"]
