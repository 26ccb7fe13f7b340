import pytest

from tests.conformance import bowl
from tuner.space import Constraint, Param, Space


def test_pruned_counts_by_the_first_reason():
    space = Space.enumerate((Param("a", (1, 2, 4)), Param("b", (1, 2))), (
        Constraint("too large", lambda c: c["a"] < 4), Constraint("odd", lambda c: c["b"] != 1 or c["a"] == 1)))
    assert space.pruned == {"too large": 2, "odd": 1}
    assert (len(space), space.size) == (3, 6)
    assert list(space.configs()) == [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}]


def test_row_and_membership():
    space = bowl()
    assert all(space.row(space.config(row)) == row for row in range(len(space)))
    assert {"mode": "x", "b": 0, "a": 1} in space
    assert {"a": 8, "b": 3, "mode": "x"} not in space


def test_neighbours_step_over_pruned_values_and_change_one_parameter():
    space = Space.enumerate((Param("a", (1, 2, 3, 4)), Param("flag", (False, True))),
                            (Constraint("no two", lambda c: c["a"] != 2),))
    row = space.row({"a": 1, "flag": False})
    assert [space.config(n) for n in space.neighbours(row)] == [{"a": 3, "flag": False}, {"a": 1, "flag": True}]


def test_neighbourhood_is_symmetric():
    space = bowl()
    assert all(row in space.neighbours(other) for row in range(len(space)) for other in space.neighbours(row))


def test_encoding_is_logarithmic_for_positive_numbers():
    encoding = bowl().encoding()
    assert encoding.shape == (len(bowl()), 3)
    assert sorted({round(float(x), 3) for x in encoding[:, 0]}) == [0.0, 0.333, 0.667, 1.0]
    assert encoding.min() == 0 and encoding.max() == 1


def test_listed_space_keeps_the_given_order_of_values_and_sorts_the_rest():
    space = Space.listed([{"b": 3}, {"b": 10}, {"b": 1}], {"shared memory": 4}, {"b": [10, 3]})
    assert space.params[0].values == (10, 3, 1)
    assert (len(space), space.size, space.pruned) == (3, 7, {"shared memory": 4})


def test_a_listed_space_may_be_empty():
    assert len(Space.listed([], {"all": 3})) == 0


@pytest.mark.parametrize("params", [[Param("a", tuple(range(1001))), Param("b", tuple(range(1001)))]])
def test_too_large_a_product_is_refused(params):
    with pytest.raises(ValueError, match="at most"):
        Space.enumerate(params)


@pytest.mark.parametrize("values", [(), (1, 1)])
def test_bad_parameters_are_refused(values):
    with pytest.raises(ValueError, match="parameter 'a'"):
        Param("a", values)
