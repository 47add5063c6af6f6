"""The mutations of the judges: each has a target that exists, breaks it, and leaves nothing behind."""

import inspect

import pytest

from kraft.chaos.cluster import SimulatedCluster
from kraft.chaos.faults import FAULTS
from kraft.chaos.quorum.judge import ORACLES as QUORUM_ORACLES
from kraft.chaos.swarm import scenario_of
from kraft.chaos.workload import WORKLOADS
from kraft.chaos.world.simulation import Simulation
from kraft.config import load_config
from tests.chaos.mutations import hunt as hunting
from tests.chaos.mutations.__main__ import main
from tests.chaos.mutations.catalogue import BY_NAME, MUTATIONS
from tests.chaos.mutations.hunt import Hunt, complaints, hunt
from tests.chaos.mutations.registry import Mutation, NoSuchTargetError, Patch, Sighting, by_name
from tests.chaos.mutations.stages import ClusterStage, RaftStage, swarm

ORACLES = frozenset(
    {
        "leader-completeness",
        "leader-candidate-completeness",
        "eligible-leaders",
        "log-matching",
        "high-watermark-monotonic",
        "high-watermark-bounded",
        "strong-isr",
        "counted-before-flushed",
        "no-committed-record-lost",
        "consistent-read",
        "one-leader-per-epoch",
        "epochs-grow",
        "fenced-not-in-isr",
        "one-controller-per-epoch",
        "metadata-agreement",
        "vote-once",
        "liveness",
        "inconsistent-offsets",
        "duplicate",
        "aborted-read",
        "precommitted-read",
        "torn-transaction",
        "lost-transaction",
        "hanging-transaction",
        "open-transaction-passed",
        "aborted-offset",
        "doubled-output",
        "torn-batch",
        "latest-below-committed",
        "earliest-behind-log-start",
        "retention-limits",
        "leader-elected",
        "listed-not-committed",
        "lost-write",
        "unseen",
        "poll-skip",
        "non-monotonic-poll",
        "non-monotonic-send",
        "empty-history",
        "unsent-read",
        "unexpected-answer",
        "unexpected-error",
        "halted",
        "not-halted",
        "corrupt-batch-served",
        "durable-records-cut",
        "offline-not-in-isr",
        "newest-of-key-kept",
        "tombstone-kept",
        "cleaned-below-high-watermark",
        "unclean-election-reported",
        "isr-by-lag",
        "epoch-fenced",
        "two-owners",
        "both-own",
        "fenced-commit",
        "told-uncommitted",
        "unmade-commit",
        "lost-commit",
        "strangers-turned-away",
        "served-without-permission",
        "refused-with-permission",
        "authentication",
        "principal-changed",
        "session-outlived",
        "quota-exceeded",
        "read-while-muted",
        *QUORUM_ORACLES,
    }
)
STAGES = tuple({m.stage.name: m.stage for m in MUTATIONS if isinstance(m.stage, ClusterStage)}.values())


class Target:
    value = 1

    def method(self):
        return self.value


class FakeStage:
    """Says what it was told to, seed by seed."""

    name = "fake"

    def __init__(self, *seen):
        self.seen = seen

    def play(self, seed):
        seen = self.seen[(seed - 1) % len(self.seen)]
        if isinstance(seen, Exception):
            raise seen
        return seen


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    def run_here(function):
        try:
            return function()
        except ZeroDivisionError as error:
            raise hunting.IsolatedRunError("Traceback\nZeroDivisionError") from error

    monkeypatch.setattr(hunting, "run_isolated", run_here)


def fake(*seen, oracles=("strong-isr",), **rest):
    return Mutation("fake", "a rule", oracles, FakeStage(*seen), (), **rest)


CLEAN, KILL = Sighting(()), Sighting(("liveness", "strong-isr"), ("it hangs", "too few"))
OTHER = Sighting(("unexpected-error",), ("an error",))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_patch_has_a_target_replaces_it_and_is_undone(mutation):
    assert mutation.patches
    before = [patch.original() for patch in mutation.patches]
    with mutation.applied():
        during = [inspect.getattr_static(patch.owner, patch.name) for patch in mutation.patches]
    after = [patch.original() for patch in mutation.patches]
    assert all(now is not original for now, original in zip(during, before, strict=True))
    assert all(now is original for now, original in zip(after, before, strict=True))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_replacement_takes_the_arguments_of_what_it_replaces(mutation):
    for patch in mutation.patches:
        original = patch.original()
        if not inspect.isfunction(original):
            continue
        parameters = inspect.signature(original).parameters.values()
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        named = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
        inspect.signature(patch.make(original)).bind(*positional, **named)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_names_oracles_that_exist_and_plays_faults_that_exist(mutation):
    assert set(mutation.oracles) <= ORACLES
    assert mutation.rule
    if isinstance(mutation.stage, ClusterStage):
        scenario = mutation.stage.scenario(1)
        assert scenario == mutation.stage.scenario(1)
        assert scenario != mutation.stage.scenario(2)
        assert {spec.name for spec in scenario.faults} <= set(FAULTS)
        assert {spec.kind for spec in scenario.workloads} <= set(WORKLOADS)
    elif isinstance(mutation.stage, RaftStage):
        assert set(mutation.oracles) <= set(QUORUM_ORACLES)
        assert mutation.stage.settings(1) == mutation.stage.settings(1)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_the_nodes_of_a_stage_can_be_configured_so(stage):
    scenario = stage.scenario(1)
    cluster = SimulatedCluster(Simulation(1, trace=False), scenario.nodes, scenario.properties)
    for node_id in cluster.specs:
        load_config(cluster.properties_of(node_id))


def test_there_are_enough_of_them_and_few_are_argued_away():
    assert len(MUTATIONS) >= 25
    assert len(BY_NAME) == len(MUTATIONS)
    assert sum(bool(mutation.equivalent) for mutation in MUTATIONS) <= 2


def test_one_name_of_a_stage_is_one_stage():
    stages = {}
    for mutation in MUTATIONS:
        assert stages.setdefault(mutation.stage.name, mutation.stage) is mutation.stage


def test_a_patch_is_undone_when_the_run_fails():
    patch = Patch(Target, "method", lambda original: lambda target: -original(target))

    def fail():
        assert Target().method() == -1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), patch.applied():
        fail()
    assert Target().method() == 1


def test_a_patch_without_a_target_of_its_own_is_refused():
    class Heir(Target):
        pass

    for patch in (Patch(Target, "gone", lambda _: 0), Patch(Heir, "method", lambda _: 0)):
        with pytest.raises(NoSuchTargetError), patch.applied():
            pass


def test_a_registry_refuses_doubles_silence_unexplained_sets_and_too_many_excuses():
    one = fake(CLEAN)
    wrong = (
        (one, one),
        (fake(CLEAN, oracles=()),),
        (fake(CLEAN, oracles=("strong-isr", "liveness")),),
        tuple(
            Mutation(str(number), "a rule", ("liveness",), FakeStage(CLEAN), (), equivalent="so it is")
            for number in range(3)
        ),
    )
    for mutations in wrong:
        with pytest.raises(ValueError, match=r"mutation|oracle"):
            by_name(mutations)
    assert by_name((fake(CLEAN, oracles=("strong-isr", "liveness"), faces="both"),))


def test_only_the_named_oracle_kills():
    found = hunt(fake(CLEAN, OTHER, ZeroDivisionError(), KILL), range(1, 301))
    assert (found.seeds, found.killed_by, found.text) == (4, "strong-isr", "too few")
    assert found.others == {"crash": 1, "liveness": 1, "unexpected-error": 1}


def test_a_mutation_that_only_others_see_or_that_crashes_survives():
    found = hunt(fake(OTHER, ZeroDivisionError(), Sighting((), error="a guard")), range(1, 7))
    assert (found.seeds, found.killed_by, found.is_settled) == (6, "", False)
    assert found.others == {"crash": 4, "unexpected-error": 2}


def test_an_argued_mutation_is_settled_and_not_killed():
    found = Hunt("fake", ("liveness",), "fake", 300, equivalent="nobody can see it")
    assert found.is_settled
    assert not found.is_killed


def test_a_stage_is_clean_or_says_what_is_wrong():
    assert list(complaints(FakeStage(CLEAN), range(1, 4))) == []
    assert list(complaints(FakeStage(CLEAN, OTHER, ZeroDivisionError()), range(1, 4))) == [
        "fake, seed 2: unexpected-error: an error",
        "fake, seed 3: ZeroDivisionError",
    ]


def test_the_swarm_can_be_a_stage():
    assert swarm(9.0)(5) == scenario_of(5, seconds=9.0)


def test_the_command_knows_its_mutations(capsys):
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(MUTATIONS)
    with pytest.raises(SystemExit) as ended:
        main(["no-such-mutation"])
    assert ended.value.code == 2
