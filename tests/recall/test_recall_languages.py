"""Texts in many languages are found by their words, with texts in other languages around them.

Not done: a German compound is not cut, so `Rechnung` alone does not find `Rechnungsnummer`; a question in one
language finds no text in another; Thai, Chinese and Japanese go by pairs of neighbouring characters, not by a
dictionary, so a long polite question about one word may find nothing; a German word alone counts as English, so that
its plural is found within a German question only; the Arabic `and` that is written onto an article stays there, so
`مكتبة` does not find `والمكتبة`.
"""

from __future__ import annotations

import pytest

from commonbook.service.book import Book
from commonbook.values.memory import Draft

TEXTS = {
    "english": "The invoice number is printed at the top of every letter that we send out.",
    "turkish": "Bu yıl ilkbaharda Iğdır'dan ılık bir rüzgâr geldi ve çocuklar bahçede oynadı.",
    "turkish city": "İSTANBUL'DA YENİ BİR EV ALDIK VE TAŞINDIK",
    "german": "Die Rechnungsnummer steht oben auf dem Brief, und die Straße ist nicht gesperrt.",
    "german people": "Der Geschirrspüler wurde gestern von den Handwerkern repariert, und er läuft wieder.",
    "chinese": "我们昨天在北京的图书馆见面,讨论了新的账单系统。",
    "chinese food": "他不吃海鲜,因为他对虾过敏。",
    "japanese": "来週の火曜日に東京都庁で会議があります。",
    "japanese cat": "うちの猫は洗濯かごの中で寝るのが好きです。",
    "japanese katakana": "サーバーのバックアップは毎晩二時に実行されます。",
    "korean": "저는 매주 토요일에 한국어를 배우고 도서관에 갑니다.",
    "arabic": "اشترينا بيتا جديدا في القاهرة قرب المكتبة والحديقة قريبة من البيت",
    "russian": "Мы купили новую машину, и наша собака боится грозы.",
    "greek": "Η βιβλιοθήκη ανοίγει στις εννέα και ο σκύλος κοιμάται.",  # noqa: RUF001
    "hindi": "मेरी बहन हर सुबह नदी के किनारे दौड़ती है और हिन्दी पढ़ाती है।",
    "thai": "แมวของเราชอบนอนในตะกร้าผ้าทุกคืน",
    "french": "Le médecin a prescrit des médicaments contre la douleur au genou, et ça va mieux.",
    "spanish": "El avión a Lisboa sale a las seis y el niño está muy contento con su abuela.",
    "hebrew": "הספרייה נפתחת בשעה תשע בבוקר",
    "vietnamese": "Chúng tôi gặp nhau ở thư viện vào thứ ba tuần sau.",
}

ASKED = [
    # Turkish: with and without its own letters, in capitals, and with endings.
    ("turkish", "ılık rüzgâr"),
    ("turkish", "ilik ruzgar"),
    ("turkish", "ILIK"),
    ("turkish", "Iğdır"),
    ("turkish", "IĞDIR"),
    ("turkish", "ığdır"),
    ("turkish city", "istanbul"),
    ("turkish city", "İstanbul"),
    ("turkish city", "Istanbul"),
    ("turkish city", "İstanbul'da ne aldık?"),
    # German: compounds by themselves and inflected, and ß as ss is not asked for.
    ("german", "Rechnungsnummer"),
    ("german", "Wo finde ich die Rechnungsnummern auf dem Brief?"),
    ("german", "Straßen"),
    ("german people", "Geschirrspüler"),
    ("german people", "Geschirrspülers"),
    ("german people", "Wer hat den Geschirrspüler repariert?"),
    ("german people", "Welcher der Handwerker war bei uns?"),
    ("german people", "geschirrspuler"),
    # Scripts without spaces between words.
    ("chinese", "图书馆"),
    ("chinese", "北京的账单"),
    ("chinese", "新的账单系统是什么?"),
    ("chinese food", "海鲜"),
    ("chinese food", "虾"),
    ("japanese", "東京"),
    ("japanese", "東京都庁の会議"),
    ("japanese cat", "猫"),
    ("japanese cat", "洗濯かご"),
    ("japanese katakana", "バックアップ"),
    ("japanese katakana", "ﾊﾞｯｸｱｯﾌﾟ"),
    ("thai", "แมว"),
    ("thai", "ตะกร้า"),
    ("korean", "한국어"),
    ("korean", "도서관"),
    ("korean", "토요일"),
    # Endings and articles.
    ("arabic", "مكتبة"),
    ("arabic", "المكتبة"),
    ("arabic", "القاهرة"),
    ("arabic", "بيت جديد"),
    ("russian", "собаки"),
    ("russian", "новая машина"),
    ("russian", "ГРОЗА"),
    ("greek", "βιβλιοθήκη"),
    ("greek", "ΒΙΒΛΙΟΘΗΚΗ"),
    ("greek", "σκύλοι"),
    ("hindi", "नदी"),
    ("hindi", "बहन"),
    ("hindi", "हिन्दी"),
    ("french", "médicament"),
    ("french", "medicaments"),
    ("french", "les genoux"),
    ("spanish", "aviones"),
    ("spanish", "niños"),
    ("spanish", "nino"),
    ("hebrew", "הספרייה"),
    ("vietnamese", "thư viện"),
    ("vietnamese", "thu vien"),
    ("english", "invoice numbers"),
]


@pytest.fixture(params=["tail", "index"])
def book_of_many(request, book: Book) -> Book:
    book.remember_many([Draft(text=text, title=f"title {n}") for n, text in enumerate(TEXTS.values())])
    if request.param == "index":
        book.reindex()
    return book


def test_a_text_in_any_language_is_found_by_its_words_and_comes_first(book_of_many: Book):
    names = {text: name for name, text in TEXTS.items()}
    answers = [
        (name, query, [names[hit.text] for hit in book_of_many.recall(query, k=3).hits]) for name, query in ASKED
    ]
    assert [(name, query, found) for name, query, found in answers if found[:1] != [name]] == []


def test_a_word_that_no_text_has_finds_nothing_in_any_script(book_of_many: Book):
    words = ["饺子", "ラーメン", "лошадь", "άλογο", "حصان", "घोड़ा", "ม้าลาย", "Pferdekutsche", "kaplumbağa", "고양이"]
    answers = {word: [hit.text for hit in book_of_many.recall(word).hits] for word in words}
    assert {word: found for word, found in answers.items() if found} == {}


def test_a_long_text_without_spaces_shows_the_passage_that_was_asked_for(book: Book):
    chinese = "".join(f"第{n}章讲的是很久以前的事情。" for n in range(300))
    text = chinese[:2000] + "海象在冰上睡觉。" + chinese[2000:]
    book.remember(text, title="long")
    hit = book.recall("海象").hits[0]
    assert "海象" in hit.passage
    assert hit.passage in text
    assert len(hit.passage) < 400
