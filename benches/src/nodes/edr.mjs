// Hardhat's EDR in anvil's place: its arguments, its files and those of its methods that the drill calls.
// usage: node edr.mjs EDR.node --port N --chain-id N --config-out FILE …
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const [library, ...words] = process.argv.slice(2);
const option = name => words[words.indexOf(name) + 1];
const edr = createRequire(import.meta.url)(library);
const bytes = hex => Uint8Array.from(Buffer.from(hex.slice(2), "hex"));
// Of the mnemonic `test test … junk`.
const KEYS = [
  "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
  "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
  "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
  "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
  "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
  "0x8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba",
  "0x92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e",
];
const BLOCK_GAS = 30_000_000n;
// As many blocks as are taken back at most.
const SNAPSHOTS = 400;

const context = new edr.EdrContext();
await context.registerProviderFactory(edr.L1_CHAIN_TYPE, edr.l1ProviderFactory());
const fork = edr.l1HardforkLatest();
const chainId = BigInt(option("--chain-id"));
const provider = await context.createProvider(
  edr.L1_CHAIN_TYPE,
  {
    allowBlocksWithSameTimestamp: false,
    allowUnlimitedContractSize: false,
    bailOnCallFailure: true,
    bailOnTransactionFailure: false,
    chainId,
    networkId: chainId,
    coinbase: bytes("0x" + "c0".repeat(20)),
    defaultTransactionGasLimit: 16_777_216n,
    genesisState: edr.l1GenesisState(fork),
    hardfork: edr.l1HardforkToString(fork),
    initialBaseFeePerGas: 1_000_000_000n,
    initialParentBeaconBlockRoot: new Uint8Array(32),
    minGasPrice: 0n,
    mining: { autoMine: false, blockGasLimit: BLOCK_GAS, memPool: { order: edr.MineOrdering.Priority } },
    network: {
      genesisBlobGas: { gasUsed: 0n, excessGas: 0n },
      genesisBlockGasLimit: BLOCK_GAS,
      genesisBlockTime: BigInt(Math.floor(Date.now() / 1000) - 100),
    },
    observability: {},
    ownedAccounts: KEYS,
    precompileOverrides: [],
  },
  { enable: false, decodeConsoleLogInputsCallback: () => [], printLineCallback: () => {} },
  { subscriptionCallback: () => {} },
  new edr.ContractDecoder(),
);

async function said(method, params = []) {
  const { data } = await provider.handleRequest(JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }));
  return typeof data === "string" ? JSON.parse(data) : data;
}

async function done(method, params) {
  const { result, error } = await said(method, params);
  if (error) throw Object.assign(new Error(error.message), { code: error.code });
  return result;
}

const head = async () => Number(await done("eth_blockNumber"));
// What the chain was at each block.
const snapshots = new Map();

async function mine(blocks) {
  for (let n = 0; n < blocks; n++) {
    const number = await head();
    snapshots.set(number, await done("evm_snapshot"));
    snapshots.delete(number - SNAPSHOTS);
    await done("evm_mine");
  }
}

const ANVILS = {
  evm_mine: () => mine(1),
  anvil_mine: ([blocks]) => mine(Number(blocks)),
  anvil_setLoggingEnabled: () => null,
  anvil_setBalance: params => done("hardhat_setBalance", params),
  anvil_setNextBlockBaseFeePerGas: params => done("hardhat_setNextBlockBaseFeePerGas", params),
  // The newest blocks are taken back, with their transactions, and as many empty ones made.
  anvil_reorg: async ([depth]) => {
    const number = (await head()) - depth;
    if (!snapshots.has(number)) throw new Error(`block ${number} is not kept`);
    await done("evm_revert", [snapshots.get(number)]);
    for (const later of [...snapshots.keys()].filter(later => later >= number)) snapshots.delete(later);
    // Blocks as empty as before would be the same ones.
    await done("hardhat_setPrevRandao", ["0x" + randomBytes(32).toString("hex")]);
    await mine(depth - 1);
    const { timestamp } = await done("eth_getBlockByNumber", ["latest", false]);
    const now = Math.max(Math.floor(Date.now() / 1000), Number(timestamp) + 1);
    await done("evm_setNextBlockTimestamp", [`0x${now.toString(16)}`]);
    await mine(1);
  },
};

// One at a time: nothing is read while blocks are made or taken back.
let last = Promise.resolve();
const inTurn = work => (last = last.then(work, work));

async function answer({ id, method, params }) {
  const anvils = ANVILS[method];
  if (!anvils) return { jsonrpc: "2.0", id, ...(await said(method, params)) };
  try {
    await anvils(params ?? []);
    return { jsonrpc: "2.0", id, result: null };
  } catch ({ code = -32603, message }) {
    return { jsonrpc: "2.0", id, error: { code, message } };
  }
}

async function answers(request) {
  if (!Array.isArray(request)) return answer(request);
  const all = [];
  for (const call of request) all.push(await answer(call));
  return all;
}

const accounts = await done("eth_accounts");
for (const account of accounts) await done("hardhat_setBalance", [account, "0x21e19e0c9bab2400000"]);
writeFileSync(option("--config-out"), JSON.stringify({ available_accounts: accounts, private_keys: KEYS }));
const server = createServer((request, response) => {
  const parts = [];
  request.on("data", part => parts.push(part));
  request.on("end", async () => {
    const body = JSON.parse(Buffer.concat(parts).toString());
    response.end(JSON.stringify(await inTurn(() => answers(body))));
  });
});
server.listen(Number(option("--port")), "127.0.0.1", () => {
  console.log(`Listening on 127.0.0.1:${server.address().port}`);
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(0));
