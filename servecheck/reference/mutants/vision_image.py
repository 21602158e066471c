"""Pictures that are dropped, read as text, mixed up, or taken without being looked at."""

from __future__ import annotations

from typing import Any, ClassVar

from servecheck.model import Outcome
from servecheck.reference.asgi import Event, Reply, Request, json_reply
from servecheck.reference.base import Answer
from servecheck.reference.engine import Job
from servecheck.reference.fields import ApiError
from servecheck.reference.mutants import Harmless, Mutant
from servecheck.reference.server import ReferenceServer
from servecheck.reference.tokens import encode

__all__ = ["HARMLESS", "MUTANTS"]

_SEEN, _PROMPT = "image-reaches-the-model", "image-makes-the-prompt-longer"
_PIXELS, _SANE = "image-is-read-as-pixels", "answer-to-an-image-is-text"
_SEVERAL, _DETAIL, _BAD = "every-image-is-seen", "detail-is-accepted", "damaged-image-is-refused"


def pictures_in(body: Event) -> int:
    """Return how many pictures a request holds."""
    contents = [message.get("content") for message in body.get("messages") or () if isinstance(message, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return sum(isinstance(part, dict) and part.get("type") == "image_url" for part in parts)


class TextOnly(ReferenceServer):
    """Refuses pictures: the model reads text."""

    def picture_text(self, part: Event, where: str) -> str:  # noqa: ARG002
        """Refuse."""
        raise ApiError(f"{where}: this model takes no images", param=where)


class TextOnlyFails(ReferenceServer):
    """Fails inside on a picture that the model cannot read."""

    def picture_text(self, part: Event, where: str) -> str:  # noqa: ARG002
        """Fail."""
        raise ApiError("image input is not supported", status=500, kind="server_error")


class Dropped(ReferenceServer):
    """Leaves the picture out and answers."""

    def picture_text(self, part: Event, where: str) -> str:  # noqa: ARG002
        """Return nothing."""
        return ""

    def messages_of(self, body: Event) -> list[Event]:
        """Join text alone, so that not even a line end is left."""
        made = super().messages_of(body)
        return [{**message, "content": (message["content"] or "").rstrip("\n")} for message in made]


class Placeholder(ReferenceServer):
    """Puts the place of a picture into the prompt and nothing of the picture."""

    def patches(self, data: bytes, where: str) -> str:
        """Keep the length."""
        return "\x01" * len(super().patches(data, where))


class Printed(ReferenceServer):
    """Prints the URL into the prompt: the base64 is read as words."""

    max_url = 3_000

    def picture_text(self, part: Event, where: str) -> str:  # noqa: ARG002
        """Print."""
        given = part.get("image_url")
        url = str(given.get("url") if isinstance(given, dict) else given)
        return url[-self.max_url :]


class Garbage(ReferenceServer):
    """Writes marks without sense to pictures, and text to text."""

    def chat_choice(self, job: Job, answer: Answer) -> Event:
        """Spoil the answer."""
        made = super().chat_choice(job, answer)
        if pictures_in(job.body):
            made["message"]["content"] = "!!!!!!!!!!!!!!!!"
            made["message"].pop("reasoning_content", None)
        return made


class FirstPictureOnly(ReferenceServer):
    """Reads the first picture of a message and drops the others."""

    def messages_of(self, body: Event) -> list[Event]:
        """Leave later pictures out."""
        return super().messages_of({**body, "messages": [self.first(one) for one in body.get("messages") or ()]})

    @staticmethod
    def first(message: Any) -> Any:  # noqa: ANN401
        """Return a message with its first picture."""
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            return message
        pictures = [part for part in content if isinstance(part, dict) and part.get("type") == "image_url"]
        return {**message, "content": [part for part in content if part not in pictures or part is pictures[0]]}


class FirstPictureTwice(ReferenceServer):
    """Has room for every picture, and the first one in all of them."""

    def messages_of(self, body: Event) -> list[Event]:
        """Repeat the first."""
        return super().messages_of({**body, "messages": [self.doubled(one) for one in body.get("messages") or ()]})

    @staticmethod
    def doubled(message: Any) -> Any:  # noqa: ANN401
        """Return a message whose pictures are all the first."""
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            return message
        pictures = [part for part in content if isinstance(part, dict) and part.get("type") == "image_url"]
        return {**message, "content": [pictures[0] if part in pictures else part for part in content]}


class OnePictureAtMost(ReferenceServer):
    """Takes one picture a request."""

    def messages_of(self, body: Event) -> list[Event]:
        """Refuse more."""
        if pictures_in(body) > 1:
            raise ApiError("At most 1 image(s) may be provided in one prompt.", param="messages")
        return super().messages_of(body)


class MessagesDropImages(ReferenceServer):
    """Refuses images in chats, and on Anthropic's route leaves them out and answers."""

    ROUTES: ClassVar[dict[tuple[str, str], str]] = {("POST", "/v1/messages"): "reply_messages_without_images"}

    def picture_text(self, part: Event, where: str) -> str:  # noqa: ARG002
        """Refuse."""
        raise ApiError(f"{where}: image_url is not supported by this model", param=where)

    async def reply_messages_without_images(self, request: Request) -> Reply:
        """Answer the text."""
        body = self.body_of(request)
        parts = [part for part in body["messages"][-1]["content"] if part["type"] == "text"]
        count = sum(len(encode(part["text"])) for part in parts)
        usage = {"input_tokens": count, "output_tokens": 5}
        said = [{"type": "text", "text": "The square is purple."}]
        return json_reply({"type": "message", "role": "assistant", "content": said, "usage": usage})


class DetailRefused(ReferenceServer):
    """Refuses a field that the API has."""

    def picture_text(self, part: Event, where: str) -> str:
        """Refuse."""
        given = part.get("image_url")
        if isinstance(given, dict) and "detail" in given:
            raise ApiError(f"{where}: unknown field 'detail'", param=where)
        return super().picture_text(part, where)


class DamagedFails(ReferenceServer):
    """Fails inside on a file that is no picture."""

    def patches(self, data: bytes, where: str) -> str:
        """Fail."""
        try:
            return super().patches(data, where)
        except ApiError as wrong:
            raise ApiError(f"cannot identify image file: {wrong}", status=500, kind="InternalServerError") from wrong


class DamagedTaken(ReferenceServer):
    """Answers whatever is sent as a picture."""

    def picture_text(self, part: Event, where: str) -> str:
        """Look away."""
        try:
            return super().picture_text(part, where)
        except ApiError:
            return "\x01" * 64


# --------------------------------------------------------------------------- odd, but right


class FewTokens(ReferenceServer):
    """Makes the same few tokens of any picture, as models with a fixed number of patches do."""

    def patches(self, data: bytes, where: str) -> str:
        """Keep eight."""
        return super().patches(data, where)[:8]


class LessDetailLessTokens(ReferenceServer):
    """Makes a quarter of the tokens where less detail is asked for."""

    def picture_text(self, part: Event, where: str) -> str:
        """Shorten."""
        made = super().picture_text(part, where)
        given = part.get("image_url")
        return made[: len(made) // 4] if isinstance(given, dict) and given.get("detail") == "low" else made


_V, _N, _R = Outcome.VIOLATED, Outcome.NO_EFFECT, Outcome.REFUSED

MUTANTS = (
    Mutant(id="text-only", server=TextOnly, trips=((_SEEN, _R),)),
    Mutant(id="text-only-fails", server=TextOnlyFails, trips=((_SEEN, _V),), source="vllm-project/vllm-ascend#10426"),
    Mutant(id="dropped", server=Dropped, trips=((_SEEN, _N), (_PROMPT, _V)), source="FlashML-org/FreeToken#348"),
    Mutant(
        id="placeholder",
        server=Placeholder,
        trips=((_SEEN, _N),),
        source="huggingface/text-generation-inference#2565",
    ),
    Mutant(
        id="printed",
        server=Printed,
        trips=((_PIXELS, _V),),
        source="huggingface/text-generation-inference#2565",
    ),
    Mutant(id="garbage", server=Garbage, trips=((_SANE, _V),), source="vllm-project/vllm#11132"),
    Mutant(id="first-picture-only", server=FirstPictureOnly, trips=((_SEVERAL, _V),)),
    Mutant(id="first-picture-twice", server=FirstPictureTwice, trips=((_SEVERAL, _V),)),
    Mutant(id="one-picture-at-most", server=OnePictureAtMost, trips=((_SEVERAL, _R),)),
    Mutant(
        id="messages-drop-images",
        server=MessagesDropImages,
        trips=((_SEEN, _R), ("messages-route-drops-no-image", _N)),
        source="FlashML-org/FreeToken#348",
    ),
    Mutant(id="detail-refused", server=DetailRefused, trips=((_DETAIL, _R),)),
    Mutant(id="damaged-fails", server=DamagedFails, trips=((_BAD, _V),), source="BerriAI/litellm#14085"),
    Mutant(id="damaged-taken", server=DamagedTaken, trips=((_BAD, _V),)),
)

HARMLESS = (
    Harmless(id="few-tokens", server=FewTokens),
    Harmless(id="less-detail-less-tokens", server=LessDetailLessTokens),
)
