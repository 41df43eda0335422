"""The cache of values of single words."""

from commonbook.runtime.word_cache import WordCache


def test_a_value_is_computed_once_while_the_cache_keeps_it():
    computed: list[str] = []

    def compute(word: str) -> str:
        computed.append(word)
        return word.upper()

    cache = WordCache(compute, capacity=3)
    assert [cache[word] for word in ("one", "two", "one", "two")] == ["ONE", "TWO", "ONE", "TWO"]
    assert computed == ["one", "two"]


def test_a_full_cache_is_cleared_and_computes_the_same_again():
    cache = WordCache(str.upper, capacity=3)
    words = [f"word {number}" for number in range(10)]
    first = [cache[word] for word in words]
    assert len(cache) <= 3
    assert [cache[word] for word in words] == first


def test_what_is_longer_than_a_word_is_not_kept():
    """Thousands of long queries would fill the memory."""
    cache = WordCache(str.upper, capacity=3)
    assert cache["word " * 100] == "WORD " * 100
    assert len(cache) == 0
