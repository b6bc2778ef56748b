"""Files made to harm: a payload that would show if it ran, and hashes made to fit, so that only the parser resists."""

import json
import os
import pickle

import numpy as np

from saltwm.disk import durable, layout


class Payload:
    """Unpickling it makes a directory."""

    def __init__(self, canary):
        self.canary = str(canary)

    def __reduce__(self):
        return os.mkdir, (self.canary,)


def pickled(canary):
    return pickle.dumps(Payload(canary))


def object_array(canary, path):
    """A .npy file whose elements are pickled objects."""
    with open(path, "wb") as file:
        np.save(file, np.array([Payload(canary)], dtype=object), allow_pickle=True)


def edit_json(path, edit):
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value, indent=2) + "\n")


def rehash(directory):
    """Make a published directory's manifest that of what is in it now."""
    (directory / durable.MANIFEST).unlink(missing_ok=True)
    durable.write_json(directory / durable.MANIFEST, durable.file_hashes(directory))


def rehash_dataset(path):
    """Make a dataset's manifests and root those of what is in it now."""
    root = json.loads((path / layout.ROOT_FILE).read_text())
    for number, part in enumerate(root["attributes"]["parts"]):
        rehash(layout.part_path(path, number))
        part["manifest_sha256"] = durable.sha256(layout.part_path(path, number) / durable.MANIFEST)
    content = {key: value for key, value in root["attributes"].items() if key != "sha256"}
    root["attributes"] = {**content, "sha256": durable.sha256_json(content)}
    durable.write_json(path / layout.ROOT_FILE, root)
