"""The texts that parity is measured on: our own, of varied kind, each open at its end; they ask for no knowledge."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["PASSAGES", "long_text", "texts"]

_CHARACTERS = 3  # a token, on these texts with their tables and scripts; measured on one tokenizer of 49,152 tokens

PASSAGES: tuple[str, ...] = (
    # prose
    (
        "The ferry left the harbour before sunrise, while the lamps along the quay were still burning. Two men "
        "carried crates of apples below deck, and a woman with a grey suitcase counted the gulls on the "
        "railing. Nobody spoke until the last house had gone behind the headland. Then the captain opened his "
        "window, looked at the sky for a long time, and said that the wind would turn before noon, so they "
        "should keep"
    ),
    # instructions
    (
        "To repair a wooden window frame, first scrape off the loose paint and let the wood dry for three "
        "days. Cut out every soft place with a chisel until only firm wood is left. Brush the hole with "
        "hardener, wait one hour, and press the filler in with a flat knife, a little higher than the surface. "
        "When it is hard, sand it level, apply a primer, and finally paint the whole frame twice. Never close "
        "the window before"
    ),
    # program text
    (
        "def moving_average(values, width):\n    if width < 1:\n        raise ValueError('width must be at "
        "least 1')\n    total = 0.0\n    means = []\n    for place, value in enumerate(values):\n        total "
        "+= value\n        if place >= width:\n            total -= values[place - width]\n        if place >= "
        "width - 1:\n            means.append(total / width)\n    return means\n\n\ndef "
        "test_moving_average():\n    assert moving_average([1, 2, 3, 4], 2) =="
    ),
    # numbers
    (
        "Station 14 reported 1013.2 hPa at 06:00, 1011.8 at 09:00, 1009.5 at 12:00 and 1007.1 at 15:00. "
        "Station 15 reported 1012.9, 1011.4, 1009.2 and 1006.7 at the same hours. The mean fall was 2.03 hPa "
        "in three hours, which is 0.68 hPa an hour. On the 27th of March the same stations had measured 998.4 "
        "and 997.9, and on the 3rd of April 1020.6 and"
    ),
    # a list
    (
        "Packing list for four days in the hills:\n1. boots, already worn in\n2. two pairs of woollen socks\n"
        "3. a rain jacket with a hood\n4. a map, a compass and a pencil\n5. a first-aid kit\n6. water for half "
        "a day\n7. bread, cheese, dried fruit and nuts\n8. a head lamp with spare batteries\n9. a small towel\n"
        "10."
    ),
    # French
    (
        "Le boulanger ouvre sa porte à cinq heures, quand la rue est encore noire. Il pose les pains sur "
        "l'étagère, essuie la farine de ses mains et attend le premier client, qui arrive toujours en courant "
        "parce que son train part bientôt. Le dimanche, tout est plus lent : les enfants choisissent leurs "
        "brioches, les voisins parlent du temps, et le chat dort près"
    ),
    # German
    (
        "Im Winter fährt der Bus nur zweimal am Tag hinauf ins Dorf, morgens um sieben und abends um fünf. Wer "
        "ihn verpasst, muss die Straße zu Fuß gehen, fast anderthalb Stunden durch den Wald. Die Schüler "
        "kennen jeden Stein auf diesem Weg, und im Februar, wenn der Schnee hoch liegt, tragen sie Laternen "
        "und singen, damit"
    ),
    # other scripts
    (
        "Погода утром была ясная, но к вечеру пошёл дождь. 今天早上天气很好，晚上却下起了雨。 "
        "朝は晴れていましたが、夕方から雨が降りました。 오늘 아침은 맑았지만 저녁에는 비가 왔습니다. "
        "كان الصباح مشمسا ثم نزل المطر في المساء. Το πρωί είχε ήλιο, αλλά το βράδυ"
    ),
    # data
    (
        '{"order": 48213, "customer": {"name": "R. Okafor", "city": "Lagos"}, "lines": [{"item": "lamp", '
        '"count": 2, "price": 19.5}, {"item": "cable", "count": 6, "price": 3.25}, {"item": "switch", "count": '
        '4, "price": 7.0}], "total": 86.5, "paid": true, "shipped": "2031-05-17", "notes": ["leave at the '
        'door", "call'
    ),
    # a dialogue
    (
        "Anna: Did you find the key?\nBen: Not yet. I looked in the drawer and under the mat.\nAnna: And in "
        "the blue coat?\nBen: Twice. There was only a ticket from last summer and half a pencil.\nAnna: Then "
        "it must be in the car. You had it when we came home.\nBen: I gave it to you at the gate, remember? "
        "You were holding the dog, and you put it\nAnna:"
    ),
    # a table
    (
        "| city | population | rivers | founded |\n| --- | --- | --- | --- |\n| Arlen | 48,200 | 2 | 1188 |\n| "
        "Brook | 7,450 | 1 | 1604 |\n| Castor | 129,300 | 3 | 1021 |\n| Dunmere | 15,870 | 0 | 1733 |\n| "
        "Eastfold | 88,010 | 2 | 1299 |\n\nThe largest of the five is Castor, with 129,300 people, and the "
        "smallest is"
    ),
    # reasoning
    (
        "A tank holds 240 litres. One pipe fills it in 8 hours, another in 12 hours. In one hour the first "
        "pipe brings 30 litres and the second brings 20 litres, so together they bring 50 litres an hour. If "
        "both are opened at 9 o'clock and the first is closed at 11 o'clock, the tank then holds 100 litres, "
        "and 140 litres are missing. The second pipe alone needs"
    ),
    # a letter
    (
        "Dear Mr Halloran,\n\nthank you for your letter of the 9th. The two chairs that you sent us have "
        "arrived, but one of them has a broken leg, and the cushion of the other is green instead of brown. We "
        "are sure that this was an oversight. Could you collect both in the coming week and replace them? Our "
        "porter is in the building every day between eight and four, except"
    ),
    # a mark-up language
    (
        '<section id="opening">\n  <h2>Opening hours</h2>\n  <ul class="hours">\n    <li>Monday to Friday: '
        "8:30 to 17:00</li>\n    <li>Saturday: 9:00 to 12:30</li>\n    <li>Sunday: closed</li>\n  </ul>\n  "
        "<p>On public holidays the library is closed. Books can be returned at any time through the <a "
        'href="/return-box">'
    ),
)
"""The first twelve are the short texts; long ones are made of all of them."""


def long_text(characters: int, start: int) -> str:
    """Return a text of about so many characters: whole passages in turn, beginning with another one for each start.

    Each text is headed by its number, so that no two share a beginning that a prefix cache would keep.
    """
    parts: list[str] = [f"Part {start + 1} of a reader with many short pieces, in no order."]
    place, turns = start, 0
    while sum(map(len, parts)) < characters:
        # From the second round on pieces are numbered anew, so that the text does not merely repeat itself.
        head = f"Piece {place * 7 % 89 + turns}."
        parts.append(f"{head} {PASSAGES[place % len(PASSAGES)]} ...")
        place += 1 + start % 3
        turns += 1
    return "\n\n".join(parts)[:characters].rsplit(" ", 1)[0]


def texts(own: Sequence[str], lengths: Sequence[int], each: int) -> tuple[tuple[str, str], ...]:
    """Return the texts to measure on as (name, text): a team's own, or the built-in ones, short before long."""
    if own:
        return tuple((f"own-{number:02d}", text) for number, text in enumerate(own, start=1))
    short = [(f"short-{number:02d}", text) for number, text in enumerate(PASSAGES[:12], start=1)]
    long = [
        (f"long-{size}-{number + 1}", long_text(size * _CHARACTERS, place * each + number))
        for place, size in enumerate(lengths)
        for number in range(each)
    ]
    return (*short, *long)
