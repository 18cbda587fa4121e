// The npm compiler with the command line of the native one, as far as Slither uses it: `--version`, and
// `--standard-json` from standard input to standard output. Imports are found in node_modules.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import solc from "solc";

const here = dirname(fileURLToPath(import.meta.url));
if (process.argv.includes("--version")) {
  console.log(`solc, the solidity compiler commandline interface\nVersion: ${solc.version().replace(".Emscripten.clang", ".Linux.g++")}`);
} else {
  const read = (path) => {
    for (const root of [here, join(here, "node_modules")]) {
      try {
        return { contents: readFileSync(join(root, path), "utf8") };
      } catch {
        // Looked for in the next place.
      }
    }
    return { error: `${path} is not found` };
  };
  process.stdout.write(solc.compile(readFileSync(0, "utf8"), { import: read }));
}
