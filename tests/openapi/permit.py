"""Takes the permit of the guide apart: its typed data, its key, its signature, and the code for three libraries."""
import re
import sys

page = open(sys.argv[1]).read()
section = page.split("\n## Signing a permit\n")[1].split("\n## ")[0]
blocks = re.findall(r"```(\w*)\n(.*?)```", section, re.S)
of = lambda kind: [text for language, text in blocks if language == kind]
key, _digest, signature = of("")
viem, ethers = of("js")
names = {
    "permit.json": of("json")[0], "viem.mjs": viem, "ethers.mjs": ethers, "eth_account_.py": of("python")[0],
    "key.txt": key.strip(), "signature.txt": signature.strip(),
}
for name, text in names.items():
    open(name, "w").write(text)
