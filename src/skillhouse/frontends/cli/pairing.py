"""The part of `skillhouse approvals` about devices that may answer."""

from __future__ import annotations

import argparse

from skillhouse.approval import OWNER, Device
from skillhouse.frontends.cli.options import UsageError, add_json, add_place
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.cli.terminal_channel import typed
from skillhouse.frontends.presentation.text import counted, one_line
from skillhouse.runtime import Skillhouse

VERBS = ("pair", "devices", "unpair")


def configure(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs."""
    pair = verbs.add_parser("pair", help="let a device answer, with a secret of its own")
    pair.add_argument("name", help="what to call it")
    pair.add_argument("--user", default=OWNER, metavar="NAME", help="as whom it answers (local)")
    devices = verbs.add_parser("devices", help="the paired devices")
    unpair = verbs.add_parser("unpair", help="let a device answer no more")
    unpair.add_argument("id", help="the device's id")
    for parser in (pair, devices, unpair):
        add_json(parser)
        add_place(parser)


def run(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    """Pair, list or unpair."""
    if options.verb == "pair":
        refuse_agents("approvals pair")
        terminal.note(f"`{one_line(options.name)}` could answer as {one_line(options.user)}")
        if not typed("pair", terminal):
            terminal.note("nothing was paired")
            return 1
        device = house.safeguards.devices.pair(options.name, user=options.user)
        if options.json:
            terminal.json({**_value(device), "secret": device.secret})
        else:
            terminal.line(f"device: {device.id}")
            terminal.line(f"secret: {device.secret}")
            terminal.note("the secret is not shown again")
        return 0
    if options.verb == "unpair":
        ended = house.safeguards.devices.unpair(options.id)
        if ended is None:
            raise UsageError(f"no device `{options.id}`; see `skillhouse approvals devices`")
        if options.json:
            counts = {"approvals": ended.approvals, "grants": ended.grants}
            terminal.json({"id": options.id, "unpaired": True, "withdrawn": counts})
        else:
            unused = counted(ended.approvals, "unused approval")
            standing = counted(ended.grants, "standing approval")
            terminal.line(f"unpaired: {options.id}; withdrawn: {unused}, {standing}")
        return 0
    found = house.safeguards.devices.all()
    if options.json:
        terminal.json([_value(device) for device in found])
        return 0
    for device in found:
        terminal.line(f"{device.id}  {one_line(device.name)}, answers as {one_line(device.user)}")
    if not found:
        terminal.note("no devices")
    return 0


def _value(device: Device) -> dict[str, object]:
    return {
        "id": device.id,
        "name": device.name,
        "user": device.user,
        "paired_ms": device.paired_ms,
    }
