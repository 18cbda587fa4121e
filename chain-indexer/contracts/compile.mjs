// Compiles src/*.sol with the pinned compiler and writes one artifact a contract: {contractName, compiler, abi,
// bytecode}. With --check it writes nothing and fails when a committed artifact differs from a fresh compile.
// Needs `npm ci` first; building dvp itself needs neither node nor npm.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import solc from "solc";

const here = dirname(fileURLToPath(import.meta.url));
const check = process.argv.includes("--check");
const contracts = ["Permit", "Escrow", "IntentSettler", "ReceiptAnchor", "Payouts", "CoinGate", "TestToken", "TestCoin",
  "ConstantProductPool", "PriceFeed", "OddToken", "OddPayee", "TestWallet", "AnchorStorm", "PoolCaller"];

const sources = Object.fromEntries(
  readdirSync(join(here, "src"))
    .filter((name) => name.endsWith(".sol"))
    .sort()
    .map((name) => [`src/${name}`, { content: readFileSync(join(here, "src", name), "utf8") }]),
);
const input = {
  language: "Solidity",
  sources,
  settings: {
    evmVersion: "cancun",
    optimizer: { enabled: true, runs: 200 },
    // No metadata hash: the bytecode then depends on the code alone, not on comments and paths.
    metadata: { bytecodeHash: "none", appendCBOR: false },
    outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } },
  },
};
const read = (path) => {
  try {
    return { contents: readFileSync(join(here, "node_modules", path), "utf8") };
  } catch (error) {
    return { error: String(error) };
  }
};
const output = JSON.parse(solc.compile(JSON.stringify(input), { import: read }));
// The compiler warns of every use of transient storage; OpenZeppelin's guard clears it at the end of the call.
const explained = (problem) =>
  problem.errorCode === "2394" && problem.sourceLocation?.file === "@openzeppelin/contracts/utils/TransientSlot.sol";
const problems = (output.errors ?? []).filter((problem) => !explained(problem)).map((problem) => problem.formattedMessage);
if (problems.length > 0) {
  // Warnings fail too: what the compiler doubts is cleared up before it is committed.
  process.stderr.write(problems.join("\n"));
  process.exit(1);
}

let stale = 0;
for (const name of contracts) {
  const compiled = output.contracts[`src/${name}.sol`][name];
  const artifact = {
    contractName: name,
    compiler: solc.version(),
    abi: compiled.abi,
    bytecode: `0x${compiled.evm.bytecode.object}`,
  };
  const path = join(here, "artifacts", `${name}.json`);
  const text = `${JSON.stringify(artifact, null, 1)}\n`;
  if (!check) {
    writeFileSync(path, text);
    continue;
  }
  let committed = "";
  try {
    committed = readFileSync(path, "utf8");
  } catch {
    // A missing artifact is a stale one.
  }
  if (committed !== text) {
    stale += 1;
    process.stderr.write(`artifacts/${name}.json differs from a fresh compile: run node compile.mjs\n`);
  }
}
process.exit(stale > 0 ? 1 : 0);
