"""Imports every operation and every model of the generated client in the folder `client`, and finds none left out."""
import importlib
import json
import re
import sys

document = json.load(open(sys.argv[1]))
sys.path.insert(0, ".")
snake = lambda name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()

operations = 0
for methods in document["paths"].values():
    for operation in methods.values():
        tag = operation["tags"][0].replace(" ", "_")
        module = importlib.import_module(f"client.api.{tag}.{snake(operation['operationId'])}")
        assert callable(module.asyncio_detailed), operation["operationId"]
        operations += 1

models = importlib.import_module("client.models")
objects = [name for name, schema in document["components"]["schemas"].items() if "properties" in schema or "enum" in schema]
missing = [name for name in objects if not hasattr(models, name)]
assert not missing, missing
print(f"client: {operations} operations and {len(objects)} models")
