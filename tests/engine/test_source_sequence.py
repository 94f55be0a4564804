"""Sources one after another: where each begins, and that a run is taken up in the right one."""

from clawback.trainer.examples import SourceSequence


class Numbers:
    """A source whose examples are numbers."""

    fresh, critic = False, None

    def __init__(self, first, steps, said=""):
        self.first, self.steps, self.said, self.restored = first, steps, said, None

    def examples(self, step):
        return [self.first + step] if step < self.steps else []

    def state(self):
        return {"first": self.first}

    def restore(self, state):
        self.restored = state

    def settle(self):
        return self.said


def test_each_begins_where_the_one_before_has_no_more():
    sequence = SourceSequence([Numbers(0, 2), Numbers(50, 0), Numbers(100, 3, "settled")])
    assert sequence.steps == 5
    assert [sequence.examples(step) for step in range(6)] == [[0], [1], [100], [101], [102], []]
    assert sequence.settle() == "settled"


def test_a_source_that_ends_early_shortens_the_run():
    early = Numbers(0, 4)
    early.examples = lambda step: [step] if step < 1 else []
    sequence = SourceSequence([early, Numbers(100, 1)])
    assert [sequence.examples(step) for step in range(3)] == [[0], [100], []]


def test_it_is_taken_up_in_the_source_that_was_under_way():
    sequence = SourceSequence([Numbers(0, 2), Numbers(100, 3)])
    for step in range(4):
        sequence.examples(step)
    again = SourceSequence([Numbers(0, 2), Numbers(100, 3)])
    again.restore(sequence.state())
    assert again.sources[1].restored == {"first": 100}
    assert again.sources[0].restored is None
    assert again.examples(4) == sequence.examples(4) == [102]
