"""The Orchestra files as others read them. Usage: read.py [SCHEMA]

- fixorchestra expands every message: its fields must be those of the data dictionaries of QuickFIX's form.
- fix-pyorch decodes an order and a fill by names.
- SCHEMA is the folder of the published schema: every file must be valid by it, and one that breaks it must not be.
"""
import copy
import json
import os
import sys
import xml.etree.ElementTree as ET

import fix_pyorch
from fixorchestra import orchestration
from lxml import etree

FILES = {
    "FIX42": ["FIX42"],
    "FIX44": ["FIX44"],
    "FIX50SP2": ["FIXT11", "FIX50SP2"],
}
ORDER = "35=D|34=2|11=o-1|55=USDC/USD|54=2|60=20261130-09:00:00|38=100|40=2|44=0.99|59=0|20001=0|10=000|"
FILL = "35=8|34=3|37=exe_1|11=o-1|17=e-1|150=F|39=2|55=USDC/USD|54=2|136=1|137=0.50|138=USD|139=7|20109=0.05|10=000|"


def names(node):
    """The names of all fields of a message, those of groups among them."""
    return {element.get("name") for element in node.iter() if element.tag in ("field", "group")}


def dictionaries(files):
    """The fields of each message of QuickFIX's dictionaries, with those of header and trailer."""
    found = {}
    roots = [ET.parse(f"fix-gateway/dictionaries/{name}.xml").getroot() for name in files]
    around = names(roots[0].find("header")) | names(roots[0].find("trailer"))
    for root in roots:
        for message in root.find("messages"):
            found[message.get("msgtype")] = names(message) | around
    return found


def expanded(path):
    # Its lists belong to the class.
    for name in ("data_types", "code_sets", "fields_by_tag", "fields_by_name", "components", "groups", "messages",
                 "messages_by_msg_type", "messages_by_name"):
        setattr(orchestration.Orchestration, name, {})
    read = orchestration.Orchestration(path)
    return {
        msg_type: {used.field.name for used in read.message_fields(message) if used.presence != "forbidden"}
        for msg_type, message in read.messages_by_msg_type.items()
    }


def decoded(path, text):
    repository = fix_pyorch.Repository.parse_repository(path)
    return json.loads(str(fix_pyorch.Message.parse(text.replace("|", "\x01"), repository)))


class Local(etree.Resolver):
    """What the schema imports is in its folder, by the last part of its address."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def resolve(self, url, _id, context):
        return self.resolve_filename(os.path.join(self.folder, os.path.basename(url)), context)


def schema(folder):
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(Local(folder))
    return etree.XMLSchema(etree.parse(os.path.join(folder, "repository.xsd"), parser))


def main():
    published = schema(sys.argv[1]) if len(sys.argv) > 1 else None
    for name, parts in FILES.items():
        path = f"docs/fix/orchestra-{name}.xml"
        messages, wanted = expanded(path), dictionaries(parts)
        assert messages == wanted, {
            msg_type: messages.get(msg_type, set()) ^ wanted.get(msg_type, set()) for msg_type in messages | wanted
        }
        order = decoded(path, ORDER)
        assert order["MsgType"] and order["Side"] == "SELL" and order["PermitNonce"] == "0", order
        said = [f"{len(messages)} messages with the dictionaries' fields", "an order"]
        if name != "FIX42":
            fill = decoded(path, FILL)
            assert fill["OrdStatus"] == "FILLED" and fill["NoMiscFees"][0]["MiscFeeAmt"] == "0.50", fill
            said.append("a fill")
        if published is not None:
            tree = etree.parse(path)
            assert published.validate(tree), published.error_log
            broken = copy.deepcopy(tree)
            space = {"o": tree.getroot().nsmap[None]}
            broken.find(".//o:field", space).set("type", "Nothing")
            assert not published.validate(broken), "the schema takes an unknown datatype"
            said.append("valid by the published schema")
        print(f"{name}: {', '.join(said)}")


main()
