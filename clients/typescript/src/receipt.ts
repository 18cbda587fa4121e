import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import { type RpcUrls, nodeOf, quantity, word } from './chain.js'
import { ChainError } from './errors.js'
import { isObject } from './transport.js'
import type { Chain, Receipt } from './api.js'

// keccak256 of Anchored(bytes32,address,uint64)
const ANCHORED = '0x0733e5a0823eaea6686da77c223c685bd0c96ab61f1323c5ab21d5ecc786f53a'
const EXPONENT_MAX = 38

export type Verification =
  | {
      verified: true
      contentHash: string
      chainId: number
      contract: string
      submitter: string
      txHash: string
      blockNumber: bigint
    }
  | {
      verified: false
      contentHash: string
      problem: 'does_not_add_up' | 'erased' | 'not_anchored' | 'not_final'
      detail: string
    }

export interface VerifyOptions {
  /** As `GET /v1/chains` gave them once: a list of your own makes the proof independent of the service. */
  chains: readonly Chain[]
  rpcUrls: RpcUrls
  /** Blocks this far below the newest one are final, on a chain whose nodes know no finalized block. */
  finalityDepth?: number
  /** How long to wait until the anchor's block is final, in milliseconds. */
  waitMs?: number
  fetch?: typeof fetch
}

/** Canonical JSON: keys sorted by their bytes, no white space. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (!isObject(value)) return JSON.stringify(value)
  const keys = Object.keys(value).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(',')}}`
}

/** The hash that is anchored; an erased receipt states that of the whole one. */
export function contentHash(receipt: Receipt): string {
  if (receipt.erased !== undefined) return receipt.erased.contentHash
  const { txHash: _txHash, finality: _finality, ...body } = receipt
  return `0x${createHash('sha256').update(canonical(body)).digest('hex')}`
}

/** How the receipt's own numbers contradict each other, or undefined when they add up. */
export function contradiction(receipt: Receipt): string | undefined {
  const { offramp, payout, fees } = receipt
  // Money for money has no conversion.
  if (offramp === null) return undefined
  const rate = /^([0-9]{1,40})(?:\.([0-9]{1,40}))?$/.exec(offramp.fxRate)
  const charges = fees.map((fee) => fee.amountMinor)
  const amounts = [offramp.fromAmountMinor, offramp.toAmountMinor, payout.amountMinor, ...charges]
  const exponents = [payout.exponent, ...fees.map((fee) => fee.exponent)]
  if (
    rate === null || !amounts.every((amount) => /^[0-9]{1,39}$/.test(amount)) ||
    !exponents.every((exponent) => Number.isInteger(exponent) && exponent >= 0 && exponent <= EXPONENT_MAX)
  ) {
    return 'an amount, an exponent or the rate cannot be read'
  }
  const [, whole = '', fraction = ''] = rate
  const scaled = BigInt(offramp.fromAmountMinor) * BigInt(whole + fraction) * 10n ** BigInt(payout.exponent)
  const converted = (exponent: number) => scaled / 10n ** BigInt(fraction.length + exponent)
  const known = fees.find((fee) => fee.currency === offramp.fromAsset)?.exponent
  // Without a fee in the input asset the receipt does not say its exponent.
  const tried = known === undefined ? [...Array(EXPONENT_MAX + 1).keys()] : [known]
  const stated = BigInt(offramp.toAmountMinor)
  if (!tried.some((exponent) => converted(exponent) === stated)) {
    return 'offramp.toAmountMinor is not fromAmountMinor times fxRate, rounded down'
  }
  const deducted = fees
    .filter((fee) => fee.collection === 'deducted' && fee.currency === offramp.toAsset)
    .reduce((sum, fee) => sum + BigInt(fee.amountMinor), 0n)
  return stated - deducted === BigInt(payout.amountMinor)
    ? undefined
    : 'payout.amountMinor is not toAmountMinor less the fees deducted from it'
}

/** Verifies a receipt by its own numbers and by its anchor on the chain. The service is not asked. */
export async function verifyReceipt(receipt: Receipt, options: VerifyOptions): Promise<Verification> {
  const hash = contentHash(receipt)
  const fault = (problem: Extract<Verification, { verified: false }>['problem'], detail: string): Verification =>
    ({ verified: false, contentHash: hash, problem, detail })
  if (receipt.erased !== undefined) return fault('erased', `erased: ${receipt.erased.fields.join(', ')}`)
  const wrong = contradiction(receipt)
  if (wrong !== undefined) return fault('does_not_add_up', wrong)

  const chainId = receipt.finality?.chainId
  const chains = options.chains.filter(
    (chain) => Object.hasOwn(options.rpcUrls, chain.name) && (chainId === undefined || chain.chainId === chainId),
  )
  if (chains.length === 0) throw new ChainError("no node of the receipt's chain is given")
  const end = performance.now() + (options.waitMs ?? 0)
  for (let pause = 1_000; ; pause = Math.min(2 * pause, 30_000)) {
    let seen: bigint | undefined
    for (const chain of chains) {
      const anchor = await findAnchor(chain, hash, receipt.txHash, options)
      if (anchor === undefined) continue
      const { isFinal, ...where } = anchor
      if (isFinal) return { verified: true, contentHash: hash, chainId: chain.chainId, ...where }
      seen = where.blockNumber
    }
    if (seen === undefined) return fault('not_anchored', 'no account whose anchors count has anchored this hash')
    if (performance.now() + pause > end) return fault('not_final', `anchored in the block ${seen}, which is not final yet`)
    await sleep(pause)
  }
}

async function findAnchor(chain: Chain, hash: string, txHash: string | undefined, options: VerifyOptions) {
  const rpc = await nodeOf(chain, options.rpcUrls, options.fetch)
  const contracts = [chain.contracts, ...(chain.earlierContracts ?? [])].map(({ anchor }) => anchor.toLowerCase())
  const submitters = chain.anchorSubmitters.map((account) => `0x${word(account)}`)
  let blocks = { fromBlock: '0x0', toBlock: 'latest' }
  if (txHash !== undefined) {
    // Nodes of large chains refuse to search all blocks.
    const mined = await rpc('eth_getTransactionReceipt', [txHash])
    if (!isObject(mined)) return undefined
    const at = `0x${quantity(mined['blockNumber']).toString(16)}`
    blocks = { fromBlock: at, toBlock: at }
  }
  const logs = await rpc('eth_getLogs', [{ ...blocks, address: contracts, topics: [ANCHORED, hash, submitters] }])
  if (!Array.isArray(logs)) throw new ChainError(`the node of ${chain.name} gives no logs`)
  for (const log of logs as unknown[]) {
    if (!isObject(log) || log['removed'] === true || !Array.isArray(log['topics'])) continue
    const [event, ofHash, submitter] = log['topics'].map((topic) => String(topic).toLowerCase())
    const contract = String(log['address']).toLowerCase()
    const counts = event === ANCHORED && ofHash === hash && contracts.includes(contract)
    if (!counts || submitter === undefined || !submitters.includes(submitter)) continue
    const blockNumber = quantity(log['blockNumber'])
    const isFinal = blockNumber <= (await finalBlock(rpc, options.finalityDepth))
    const txHash = String(log['transactionHash'])
    return { contract, submitter: `0x${submitter.slice(26)}`, txHash, blockNumber, isFinal }
  }
  return undefined
}

async function finalBlock(rpc: Awaited<ReturnType<typeof nodeOf>>, depth: number | undefined): Promise<bigint> {
  if (depth !== undefined) return quantity(await rpc('eth_blockNumber', [])) - BigInt(depth)
  const block = await rpc('eth_getBlockByNumber', ['finalized', false])
  return isObject(block) ? quantity(block['number']) : -1n
}
