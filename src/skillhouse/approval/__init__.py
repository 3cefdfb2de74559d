"""Gets a person's answer, once, about exact content.

Each name is loaded when it is first used, because most commands ask no question.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.approval.broker import ApprovalBroker as ApprovalBroker
    from skillhouse.approval.broker import ApprovalEvent as ApprovalEvent
    from skillhouse.approval.connections import Connections as Connections
    from skillhouse.approval.connections import caller_connection as caller_connection
    from skillhouse.approval.connections import is_caller_connection as is_caller_connection
    from skillhouse.approval.connections import new_connection as new_connection
    from skillhouse.approval.device_secrets import DeviceSecrets as DeviceSecrets
    from skillhouse.approval.devices import BODY_MAX as BODY_MAX
    from skillhouse.approval.devices import Device as Device
    from skillhouse.approval.devices import DeviceAnswer as DeviceAnswer
    from skillhouse.approval.devices import Devices as Devices
    from skillhouse.approval.devices import Issuer as Issuer
    from skillhouse.approval.devices import Tokens as Tokens
    from skillhouse.approval.grants import NEVER_LASTING as NEVER_LASTING
    from skillhouse.approval.grants import ApprovedScript as ApprovedScript
    from skillhouse.approval.grants import Grant as Grant
    from skillhouse.approval.grants import GrantStore as GrantStore
    from skillhouse.approval.grants import ScriptStore as ScriptStore
    from skillhouse.approval.grants import narrowed as narrowed
    from skillhouse.approval.live_servers import LiveServers as LiveServers
    from skillhouse.approval.live_servers import ServerRow as ServerRow
    from skillhouse.approval.pairing_codes import CODE_SECONDS as CODE_SECONDS
    from skillhouse.approval.pairing_codes import PairingCodes as PairingCodes
    from skillhouse.approval.request import FOUND_HEADING as FOUND_HEADING
    from skillhouse.approval.request import LASTING as LASTING
    from skillhouse.approval.request import OWNER as OWNER
    from skillhouse.approval.request import SENT_HEADING as SENT_HEADING
    from skillhouse.approval.request import Answer as Answer
    from skillhouse.approval.request import Approval as Approval
    from skillhouse.approval.request import ApprovalError as ApprovalError
    from skillhouse.approval.request import ApprovalRequest as ApprovalRequest
    from skillhouse.approval.request import ApprovalSettings as ApprovalSettings
    from skillhouse.approval.request import ApprovalState as ApprovalState
    from skillhouse.approval.request import Asked as Asked
    from skillhouse.approval.request import Channel as Channel
    from skillhouse.approval.request import Facts as Facts
    from skillhouse.approval.request import Level as Level
    from skillhouse.approval.request import Pattern as Pattern
    from skillhouse.approval.request import Reply as Reply
    from skillhouse.approval.request import Unattended as Unattended
    from skillhouse.approval.request import allowed_answers as allowed_answers
    from skillhouse.approval.request import canonical as canonical
    from skillhouse.approval.request import content_digest as content_digest
    from skillhouse.approval.request import rows_of as rows_of
    from skillhouse.approval.request import rule_text as rule_text
    from skillhouse.approval.request import session_key as session_key
    from skillhouse.approval.wait import AWAITED as AWAITED
    from skillhouse.approval.wait import ApprovalOutcome as ApprovalOutcome
    from skillhouse.approval.webhook import SignatureError as SignatureError
    from skillhouse.approval.webhook import WebhookChannel as WebhookChannel
    from skillhouse.approval.webhook import checked_url as checked_url
    from skillhouse.approval.webhook import secret_bytes as secret_bytes
    from skillhouse.approval.webhook import signed_headers as signed_headers
    from skillhouse.approval.webhook import verified_id as verified_id
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
