"""Data that is wrong: kept exactly or rejected with account and reason; and a sick provider that looks healthy."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler import source_token
from reconciler.diff import decide
from reconciler.errors import SourceOrderError
from reconciler.items import MAX_ITEM_BYTES, size, storable, to_item
from reconciler.merge import Page, Pair
from reconciler.source import SourceRecord
from reconciler.view import EntitlementsTable, ViewRow
from reconciler.work import Job
from tests.faults import PASS, Wire, meanwhile
from tests.kit import Killed, Rows, command, delivered, kill, killed_names, logged, numbered, ordered, wait
from tests.providers import ODD_IDS, from_provider, night, too_fast
from tests.world import NIGHT, World
from tools.provider import Provider
