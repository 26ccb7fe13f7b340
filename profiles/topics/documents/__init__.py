"""The documents of the topics as types: what `numbers` holds of each; empty where an analysis does not apply.

Units stand in the names. Times of parts, causes or GPUs are mappings by their names, which `analysis.trace` has.
"""

from profiles.topics.documents.account import CausesDocument, NeededDocument
from profiles.topics.documents.order import CriticalDocument, LaunchesDocument, SampledDocument, SequencesDocument, TimeDocument
from profiles.topics.documents.work import (
    CommunicationDocument,
    LayerDocument,
    MemoryDocument,
    OperatorsDocument,
)

DOCUMENT = (CausesDocument | NeededDocument | TimeDocument | OperatorsDocument | LayerDocument | CommunicationDocument
            | MemoryDocument | LaunchesDocument | SequencesDocument | CriticalDocument | SampledDocument)
