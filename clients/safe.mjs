// Deploys a Safe 1.4.1, as its authors publish it, with tokens of a sandbox, whose two owners sign together, and writes it
// as `chain.contractWallet` into the sandbox's file. Usage: node safe.mjs FOLDER/sandbox.json
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import {
  concat, createPublicClient, createWalletClient, decodeEventLog, defineChain, encodeFunctionData, http, maxUint256,
  parseAbi, zeroAddress,
} from 'viem'
import { privateKeyToAccount } from 'viem/accounts'

const artifact = (path) => createRequire(import.meta.url)(
  `@safe-global/safe-contracts/build/artifacts/contracts/${path}.json`)
const sandbox = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const { chainId, rpcUrl, contracts, tokens, wallets } = sandbox.chain
const chain = defineChain({
  id: chainId, name: 'sandbox', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
  rpcUrls: { default: { http: [rpcUrl] } },
})
const node = createPublicClient({ chain, transport: http() })
const named = [wallets[5], wallets[6]]
  .sort((one, other) => (one.address.toLowerCase() < other.address.toLowerCase() ? -1 : 1))
const owners = named.map((owner) => privateKeyToAccount(owner.privateKey))
const [account] = owners
const client = createWalletClient({ account, chain, transport: http() })

const mined = async (hash) => {
  const receipt = await node.waitForTransactionReceipt({ hash, pollingInterval: 100 })
  if (receipt.status !== 'success') throw new Error(`reverted: ${hash}`)
  return receipt
}
const deploy = async ({ abi, bytecode }) => (await mined(await client.deployContract({ abi, bytecode }))).contractAddress
const write = async (address, abi, functionName, args) =>
  mined(await client.writeContract({ address, abi, functionName, args }))

const [safe, factory, handler] = [
  artifact('Safe.sol/Safe'), artifact('proxies/SafeProxyFactory.sol/SafeProxyFactory'),
  artifact('handler/CompatibilityFallbackHandler.sol/CompatibilityFallbackHandler'),
]
const singleton = await deploy(safe)
const initializer = encodeFunctionData({
  abi: safe.abi, functionName: 'setup',
  args: [owners.map(({ address }) => address), 2n, zeroAddress, '0x', await deploy(handler), zeroAddress, 0n, zeroAddress],
})
const made = await write(await deploy(factory), factory.abi, 'createProxyWithNonce', [singleton, initializer, 1n])
const [address] = made.logs.flatMap((log) => {
  try {
    return [decodeEventLog({ abi: factory.abi, data: log.data, topics: log.topics }).args.proxy]
  } catch {
    return []
  }
})

// The owners' transaction: the Safe approves the permit contract.
const token = parseAbi(['function mint(address to, uint256 amount)', 'function approve(address spender, uint256 amount)'])
await write(tokens[0].address, token, 'mint', [address, 1_000_000_000n])
const approve = encodeFunctionData({ abi: token, functionName: 'approve', args: [contracts.permit, maxUint256] })
const call = [tokens[0].address, 0n, approve, 0, 0n, 0n, 0n, zeroAddress, zeroAddress]
const hash = await node.readContract({ address, abi: safe.abi, functionName: 'getTransactionHash', args: [...call, 0n] })
const signatures = concat(await Promise.all(owners.map((owner) => owner.sign({ hash }))))
await write(address, safe.abi, 'execTransaction', [...call, signatures])

sandbox.chain.contractWallet = { address, owners: named }
writeFileSync(process.argv[2], JSON.stringify(sandbox))
