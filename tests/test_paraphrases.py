"""Questions that share no word with their answer, asked of the pure parts of recall: see `paraphrases`."""

from __future__ import annotations

from collections import Counter

from commonplace import analysis, ranking, stopwords
from commonplace.engines.static_table import StaticTable
from tests.paraphrases import ASKED, OTHERS

MEMORIES = [memory for memory, _ in ASKED] + list(OTHERS)


def first_three(table: StaticTable, query: str) -> list[str]:
    bags = [Counter(analysis.terms(memory)) for memory in MEMORIES]
    passages = [
        ranking.Passage(id=f"{at:02}", thread=f"{at:02}", position=0, bag=bag, length=bag.total())
        for at, bag in enumerate(bags)
    ]
    df = Counter(term for bag in bags for term in bag)
    idf = {term: ranking.idf(len(bags), df[term]) for term in analysis.query_terms(query)}
    around = sorted(term for term in df if term not in stopwords.ENGLISH)
    *vectors, asked = (vector_bag(text) for text in (*MEMORIES, query))
    scored = ranking.rank(
        ranking.Question(idf=idf),
        passages,
        near=table.near(list(idf), around),
        vectors=table.embed(vectors),
        asked=table.embed([asked])[0],
    )
    return [MEMORIES[int(one.id)] for one in scored[:3]]


def vector_bag(text: str) -> dict[str, float]:
    words = analysis.words(text)
    said = Counter(word for word in words if word not in stopwords.ENGLISH)
    return {word: ranking.share(count, len(words)) for word, count in said.items()}


def test_there_are_sixty_memories_and_thirty_questions_without_a_shared_content_word():
    assert (len(set(MEMORIES)), len(ASKED)) == (60, 30)
    shared = {
        question: set(analysis.query_terms(question)) & set(analysis.query_terms(memory)) for memory, question in ASKED
    }
    assert not {question: terms for question, terms in shared.items() if terms}


def test_two_thirds_of_the_paraphrased_questions_find_their_memory_among_the_first_three():
    table = StaticTable()
    found = [question for memory, question in ASKED if memory in first_three(table, question)]
    missed = [question for _, question in ASKED if question not in found]
    assert len(found) >= 20, missed
