"""SCRAM credentials of all users, from the users' settings in the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.security.credentials.decoys import Decoys
from barnabas.security.credentials.scram_credential import (
    KnownCredential,
    ScramCredential,
    ScramMechanism,
)
from barnabas.security.identity.principal import KafkaPrincipal

logger = logging.getLogger(__name__)


class UserCredentials:
    def __init__(self, decoy_secret: bytes) -> None:
        self._known: dict[tuple[ScramMechanism, str], KnownCredential] = {}
        self._decoys = Decoys(decoy_secret)

    @property
    def is_empty(self) -> bool:
        return not self._known

    def put(self, name: str, settings: Mapping[str, str]) -> None:
        """Replace the settings of a user. An unreadable credential counts as none."""
        for mechanism in ScramMechanism:
            before = self._known.pop((mechanism, name), None)
            if before is not None:
                self._decoys.remove(mechanism, before.credential)
            text = settings.get(mechanism.mechanism_name)
            if text is None:
                continue
            try:
                credential = ScramCredential.decode(mechanism, text)
            except ValueError as error:
                logger.warning(
                    "user %s cannot log in by %s: its credential is unusable, %s; set the password again",
                    name,
                    mechanism.mechanism_name,
                    error,
                )
            else:
                self._known[mechanism, name] = KnownCredential(credential, KafkaPrincipal.user(name))
                self._decoys.add(mechanism, credential)

    def find(self, mechanism: ScramMechanism, name: str) -> KnownCredential:
        """The credential, or a decoy. A decoy is made for every name, so that the time reveals nothing."""
        decoy = self._decoys.of(mechanism, name)
        return self._known.get((mechanism, name)) or decoy

    def decoy(self, mechanism: ScramMechanism, name: str) -> KnownCredential:
        """A decoy, for every name."""
        return self._decoys.of(mechanism, name)
