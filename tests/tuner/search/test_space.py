import pytest

from tests.tuner.search.conformance import bowl
from tuner.tuning.space import Constraint, Param, Space


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


def numbered(name, most):
    return Param(name, tuple(range(1, most + 1)))


def test_constraints_that_say_what_they_read_give_the_same_space():
    params = (numbered("a", 6), Param("b", ("x", "y", "z")), numbered("c", 5), Param("flag", (False, True)))
    asked = []

    def noted(constraint):
        def holds(config):
            asked.append(set(config))
            return constraint.holds(config)
        return holds

    plain = [Constraint("odd sum", lambda c: (c["a"] + c["c"]) % 2 == 0),
             Constraint("only x with a flag", lambda c: c["b"] == "x" or not c["flag"]),
             Constraint("odd sum", lambda c: c["a"] != c["c"]), Constraint("never wrong", lambda c: True)]
    reads = (("a", "c"), ("b", "flag"), ("c", "a"), ())
    told = [Constraint(each.reason, noted(each), names) for each, names in zip(plain, reads, strict=True)]
    walked, looked = Space.enumerate(params, plain), Space.enumerate(params, told)
    assert list(looked.configs()) == list(walked.configs()) and looked.pruned == walked.pruned and len(looked) > 10
    assert len(asked) == 30 + 6 + 30 + 1 and asked[0] == {"a", "c"} and asked[-1] == set()


def test_what_an_earlier_constraint_removed_is_not_asked_of_the_next():
    params = (Param("a", (0, 1, 2)), numbered("b", 2))

    def divides(config):
        if config["a"] == 0:
            raise ValueError("division by zero")
        return config["b"] % config["a"] == 0

    first = Constraint("none", lambda c: c["a"] != 0, ("a",))
    assert len(Space.enumerate(params, (first, Constraint("divides", divides, ("a", "b"))))) == 3
    with pytest.raises(ValueError, match="division by zero"):
        Space.enumerate(params, (Constraint("divides", divides, ("a", "b")), first))


def test_millions_of_combinations_are_counted_where_constraints_say_what_they_read():
    params = [numbered(name, 20) for name in "abcde"]
    rules = [Constraint("a is b", lambda c: c["a"] == c["b"], ("a", "b")),
             Constraint("c is d", lambda c: c["c"] == c["d"], ("c", "d"))]
    space = Space.enumerate(params, rules)
    assert (len(space), space.size, space.pruned) == (8000, 3_200_000, {"a is b": 3_040_000, "c is d": 152_000})
    with pytest.raises(ValueError, match="3,200,000 combinations; at most 1,000,000"):
        Space.enumerate(params, [*rules, Constraint("who knows", lambda c: True)])
    with pytest.raises(ValueError, match="3,200,000 configurations; at most 1,000,000"):
        Space.enumerate(params, [])
    with pytest.raises(ValueError, match="64,000,000"):
        Space.enumerate([numbered(name, 60) for name in "abcde"], rules)
    with pytest.raises(ValueError, match="all of it: 3,200,000 combinations of what it reads"):
        Space.enumerate(params, [Constraint("all of it", lambda c: True, tuple("abcde"))])
