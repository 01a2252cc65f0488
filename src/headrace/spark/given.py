"""The options that a query was given. Their names come in lower case from Spark, and may be written in any."""

import difflib
import logging
from collections.abc import Iterable, Mapping

from headrace.client.cluster import parse_bootstrap
from headrace.spark import option_values as values
from headrace.spark.kafka_settings import NAMES
from headrace.spark.option_values import OptionRefused

log = logging.getLogger(__name__)

BOOTSTRAP = "kafka.bootstrap.servers"
PLAIN_ONLY = "kafka.security.protocol"
KAFKA = "kafka."
LIKENESS_MIN = 0.8
"""Of a name to one of Kafka's, from which on it is taken for a typing error and not for a setting of somebody else."""

_told: set[str] = set()
"""Of this process: names that it has warned of. Spark has options read again for each micro-batch of a sink."""


class Given:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}

    def check_known(self, known: Iterable[str], refused: Mapping[str, str]) -> None:
        """OptionRefused for those that there are not, or that are `refused`, which says why. Kafka's clients take any
        name, and so are those taken that are for them."""
        by_key = {name.lower(): name for name in known}
        for key in sorted(self._given):
            if key in refused:
                raise OptionRefused(f"option {key} cannot be set: {refused[key]}")
            if key.startswith(KAFKA):
                _warn_if_mistyped(key)
            elif key not in by_key:
                near = difflib.get_close_matches(key, by_key, 1)
                names = ", ".join(sorted(by_key.values()))
                hint = f"; is {by_key[near[0]]} meant?" if near else f"; known are {names}, kafka.*"
                raise OptionRefused(f"there is no option {key}{hint}")

    def bootstrap(self) -> str:
        text = self.text(BOOTSTRAP)
        if text is None:
            raise OptionRefused(
                f"option {BOOTSTRAP} is missing: host:port of a broker, several with commas between them"
            )
        try:
            parse_bootstrap(text)
        except ValueError:
            raise OptionRefused(f"option {BOOTSTRAP} is host:port, several with commas, not {text!r}") from None
        if self.choice(PLAIN_ONLY, ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")) not in (None, "plaintext"):
            raise OptionRefused(f"option {PLAIN_ONLY} can only be PLAINTEXT: TLS and SASL are not spoken here")
        return text

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def whole(self, name: str, smallest: int = 1) -> int | None:
        text = self.text(name)
        largest = values.INT_MAX if name.startswith(KAFKA) else values.LONG_MAX  # as Kafka's clients have theirs
        return None if text is None else values.whole(name, text, smallest, largest)

    def whole_or(self, name: str, otherwise: int, smallest: int = 1) -> int:
        given = self.whole(name, smallest)
        return otherwise if given is None else given

    def flag(self, name: str, otherwise: bool) -> bool:
        given = self.flag_if_given(name)
        return otherwise if given is None else given

    def flag_if_given(self, name: str) -> bool | None:
        text = self.text(name)
        return None if text is None else values.flag(name, text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        text = self.text(name)
        return None if text is None else values.choice(name, text, choices)

    def duration_ms(self, name: str, otherwise: int) -> int:
        text = self.text(name)
        return otherwise if text is None else values.duration_ms(name, text)

    def size_bytes(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else values.size_bytes(name, text)


def _warn_if_mistyped(key: str) -> None:
    name = key.removeprefix(KAFKA)
    if name in NAMES or key in _told:
        return
    near = difflib.get_close_matches(name, NAMES, 1, LIKENESS_MIN)
    if near:
        _told.add(key)
        log.warning("option %s is no setting of Kafka's clients, and is ignored; is %s%s meant?", key, KAFKA, near[0])
