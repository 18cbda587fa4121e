import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspect } from 'node:util'

import { type Chain, Client, type Receipt, contentHash, erc20, verifyReceipt } from '../src/index.js'
import { fake, json } from './fake.js'

const anchor = `0x${'22'.repeat(20)}`
const submitter = `0x${'33'.repeat(20)}`
const chain: Chain = {
  name: 'test',
  chainId: 5,
  contracts: { anchor, escrow: `0x${'66'.repeat(20)}` },
  anchorSubmitters: [submitter],
  permitDomain: { name: 'Permit', version: '1', chainId: 5, verifyingContract: `0x${'55'.repeat(20)}` },
}
const receipt: Receipt = {
  _schemaVersion: 'svc-receipt-1',
  clientReference: 'o-1',
  provider: 'p',
  offramp: null,
  fees: [],
  payout: { amountMinor: '5', currency: 'EUR', exponent: 2, bankRef: null, occurredAt: '2026-11-29T16:50:02.000Z' },
  issuedAt: '2026-11-29T16:50:03.000Z',
}
const word = (address: string) => `0x${address.slice(2).padStart(64, '0')}`
const log = {
  address: anchor,
  removed: false,
  blockNumber: '0x10',
  transactionHash: '0xaa',
  topics: ['0x0733e5a0823eaea6686da77c223c685bd0c96ab61f1323c5ab21d5ecc786f53a', contentHash(receipt), word(submitter)],
}

/** A node with these results by method, and what it was asked. */
async function node(results: Record<string, unknown>) {
  const asked: { method: string; params: unknown[] }[] = []
  const server = await fake((seen, response) => {
    const { method, params } = JSON.parse(seen.body)
    asked.push({ method, params })
    const result = typeof results[method] === 'function' ? results[method]() : results[method]
    json(200, { jsonrpc: '2.0', id: 1, ...(result === undefined ? { error: { code: -32601 } } : { result }) })(
      seen,
      response,
    )
  })
  return { rpcUrls: { test: `${server.url}/key-hidden` }, asked, close: server.close }
}

const good = {
  eth_chainId: '0x5',
  eth_getLogs: [log],
  eth_getBlockByNumber: { number: '0x10' },
  eth_getTransactionReceipt: { blockNumber: '0x10' },
  eth_blockNumber: '0x14',
}

async function verified(results: Record<string, unknown>, of: Receipt = receipt, more: object = {}) {
  const { rpcUrls, asked, close } = await node({ ...good, ...results })
  try {
    return { ...(await verifyReceipt(of, { chains: [chain], rpcUrls, ...more })), asked }
  } finally {
    close()
  }
}

test('a receipt is verified by a final anchor of an account that counts', async () => {
  const found = await verified({})
  assert.ok(found.verified)
  assert.deepEqual([found.contract, found.submitter, found.blockNumber, found.txHash], [anchor, submitter, 16n, '0xaa'])
  const query = found.asked.find(({ method }) => method === 'eth_getLogs')?.params
  assert.deepEqual(query, [
    { fromBlock: '0x0', toBlock: 'latest', address: [anchor], topics: [log.topics[0], log.topics[1], [log.topics[2]]] },
  ])
  const finality = { txHash: `0x${'11'.repeat(32)}`, contractAddress: anchor, chainId: 5 }
  const narrow = await verified({}, { ...receipt, txHash: finality.txHash, finality })
  assert.ok(narrow.verified)
  assert.match(JSON.stringify(narrow.asked), /"fromBlock":"0x10","toBlock":"0x10"/)
})

test('a node that answers with other logs proves nothing', async () => {
  const stranger = { ...log, topics: [log.topics[0], log.topics[1], word(`0x${'44'.repeat(20)}`)] }
  const other = { ...log, topics: [log.topics[0], `0x${'00'.repeat(32)}`, log.topics[2]] }
  const lies = [
    stranger,
    other,
    { ...log, address: submitter },
    { ...log, removed: true },
    { ...log, topics: [] },
    null,
    'x',
  ]
  const found = await verified({ eth_getLogs: lies })
  assert.ok(!found.verified && found.problem === 'not_anchored')
  const nobody = await verified({}, receipt, { chains: [{ ...chain, anchorSubmitters: [] }] })
  assert.ok(!nobody.verified && nobody.problem === 'not_anchored')
})

test('an anchor that is not final is waited for', async () => {
  for (const results of [{ eth_getBlockByNumber: { number: '0xf' } }, { eth_getBlockByNumber: null }]) {
    const found = await verified(results)
    assert.ok(!found.verified && found.problem === 'not_final')
  }
  let final = 14
  const rising = { eth_getBlockByNumber: () => ({ number: `0x${(++final).toString(16)}` }) }
  assert.ok((await verified(rising, receipt, { waitMs: 60_000 })).verified)
  assert.ok((await verified({}, receipt, { finalityDepth: 4 })).verified)
  assert.ok(!(await verified({}, receipt, { finalityDepth: 5 })).verified)
})

test('a receipt that was erased, or does not add up, is not verified', async () => {
  const erased = await verified(
    {},
    { ...receipt, erased: { fields: ['clientReference'], contentHash: contentHash(receipt) } },
  )
  assert.ok(!erased.verified && erased.problem === 'erased')
})

test("a node of another chain is not believed, and no message has the node's address", async () => {
  for (const results of [
    { eth_chainId: '0x6' },
    { eth_getLogs: {} },
    { eth_chainId: 'x' },
    { eth_getLogs: undefined },
  ]) {
    await assert.rejects(
      verified(results),
      (failed: Error) => failed.name === 'ChainError' && !/hidden|127/.test(failed.message),
    )
  }
  const { rpcUrls, close } = await node({})
  close()
  const gone = verifyReceipt(receipt, { chains: [chain], rpcUrls })
  await assert.rejects(gone, (failed: Error) => /ECONNREFUSED/.test(failed.message) && !/hidden/.test(inspect(failed)))
  await assert.rejects(verifyReceipt(receipt, { chains: [chain], rpcUrls: {} }), /no node/)
})

test('a permit has the wallet\'s next nonce, or the one that is given', async () => {
  const wallet = { address: submitter, nextNonce: '9', tokens: [] }
  const service = await fake((seen, response) =>
    json(200, seen.url === '/v1/chains' ? { chains: [chain] } : wallet)(seen, response),
  )
  const client = new Client({ baseUrl: service.url, apiKey: 'k' })
  const token = `0x${'77'.repeat(20)}`
  const options = {
    asset: erc20('USDC', { address: token }),
    amountMinor: '5',
    owner: submitter,
    sign: async () => `0x${'ab'.repeat(65)}`,
  }
  const permit = await client.signPermit(options)
  assert.equal(permit.nonce, '9')
  assert.equal(permit.spender, chain.contracts.escrow)
  assert.ok(permit.deadline > Date.now() / 1_000 + 3_600)
  assert.equal(service.seen.at(-1)?.url, `/v1/wallets/${submitter}?chain=${chain.name}`)
  assert.equal((await client.signPermit({ ...options, nonce: 3n })).nonce, '3')
  await assert.rejects(client.signPermit({ ...options, sign: async () => '0x' }), /65 bytes/)
  await assert.rejects(
    client.signPermit({ ...options, asset: erc20('USDC', { address: token, chain: 'other' }) }),
    /asset.chain/,
  )
  service.close()
})
