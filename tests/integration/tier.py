"""What a plain run of the tests leaves out, and --all takes in."""
import collections
import itertools
import sys

ALL = "--all" in sys.argv[2:]
turns = collections.defaultdict(itertools.count)


def some(layouts, share=3):
    """The first, with which the others are compared, and one of `share` of the others: each time others of the same list."""
    first, *others = layouts
    step = 1 if ALL else min(share, len(others))
    return [first, *others[next(turns[repr(others)]) % step::step]]
