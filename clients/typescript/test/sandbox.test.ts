// Against a running sandbox: DVP_SANDBOX is its directory.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import { type AddressInfo } from 'node:net'
import { describe, test } from 'node:test'

import { privateKeyToAccount } from 'viem/accounts'

import { ApiError, Client, type Event, type Intent, erc20, fiat, toMinor, verifyWebhook } from '../src/index.js'
import { fake } from './fake.js'

const directory = process.env['DVP_SANDBOX']
const sandbox = directory === undefined ? undefined : JSON.parse(readFileSync(`${directory}/sandbox.json`, 'utf8'))

const connect = (baseUrl: string) =>
  new Client({
    baseUrl,
    apiKey: sandbox.partner.apiKey,
    signingSecret: sandbox.partner.signingSecret,
    rpcUrls: { [sandbox.chain.name]: sandbox.chain.rpcUrl },
    log: () => {},
  })

const intent = (more: object = {}): Intent => ({
  intentId: randomUUID(),
  clientReference: randomUUID(),
  user: 'me',
  inputAsset: fiat('USD'),
  outputAsset: fiat('EUR'),
  inputAmountMinor: toMinor('100', 2),
  minOutputAmountMinor: '1',
  deadline: Date.now() + 3_600_000,
  settlementType: 'offchain',
  beneficiary: { account: 'bene_straight:dest_10000000', name: 'Jane Doe' },
  ...more,
})

describe('with a sandbox', { concurrency: true, skip: sandbox === undefined }, () => {
  const dvp = connect(sandbox?.http ?? '')

  test('an order of money for money with a firm quote is completed', async () => {
    const indicative = await dvp.quote({
      requestId: randomUUID(),
      actorId: 'me',
      source: 'USD',
      target: 'EUR',
      amount: '100',
      side: 'sell',
    })
    assert.ok(indicative.candidates.length > 0)
    const quote = await dvp.firmQuote({
      requestId: randomUUID(),
      actorId: 'me',
      inputAsset: fiat('USD'),
      outputAsset: fiat('EUR'),
      amountMinor: toMinor('100', 2),
      amountType: 'source',
    })
    const order = intent({ quoteId: quote.quoteId, minOutputAmountMinor: quote.output.amountMinor })
    const answer = await dvp.submitIntent(order)
    assert.ok(answer.status === 'accepted')
    const execution = await dvp.waitForExecution(answer.reference, { refType: 'executionId' })
    assert.equal(execution.status, 'completed')
    assert.equal((await dvp.intentStatus(order.intentId)).status, 'completed')
  })

  test('an order that pays with a token ends with a receipt that the chain proves', async () => {
    const { chain } = sandbox
    const wallet = privateKeyToAccount(chain.wallets[0].privateKey)
    const usdc = erc20('USDC', { chain: chain.name, address: chain.tokens[0].address })
    const amountMinor = toMinor('100', chain.tokens[0].decimals)
    const permit = await dvp.signPermit({ asset: usdc, amountMinor, owner: wallet.address, sign: wallet.signTypedData })
    const order = intent({
      user: wallet.address,
      inputAsset: usdc,
      outputAsset: fiat('USD'),
      inputAmountMinor: amountMinor,
      permit,
      settlementType: 'hybrid',
      beneficiary: { account: '000123456789', name: 'Jane Doe', country: 'US', payoutMethod: 'ach' },
    })
    const answer = await dvp.submitIntent(order)
    assert.equal(answer.status, 'accepted')
    const execution = await dvp.waitForExecution(order.clientReference ?? '', { anchored: true })
    assert.equal(execution.status, 'completed')
    const receipt = await dvp.receipt(order.clientReference ?? '')
    const found = await dvp.verifyReceipt(receipt, { waitMs: 60_000 })
    assert.ok(found.verified)
    assert.equal(found.txHash, receipt.txHash)
    const forged = await dvp.verifyReceipt({ ...receipt, issuedAt: '2026-01-01T00:00:00.000Z' })
    assert.ok(!forged.verified && forged.problem === 'not_anchored')
  })

  test('a rejected intent is an outcome', async () => {
    const answer = await dvp.submitIntent(intent({ minOutputAmountMinor: toMinor('1000000', 2) }))
    assert.ok(answer.status === 'rejected')
    assert.equal(answer.reason, 'below_minimum_output')
  })

  test('an error names the field at fault, its page and the request', async () => {
    await assert.rejects(dvp.submitIntent(intent({ deadline: 1 })), (failed: unknown) => {
      assert.ok(failed instanceof ApiError)
      assert.deepEqual([failed.status, failed.code, failed.param], [400, 'INVALID_PARAMETER', 'deadline'])
      assert.equal(failed.docUrl, `${sandbox.http}/docs/errors/INVALID_PARAMETER`)
      return true
    })
    await assert.rejects(dvp.execution('no-such-order'), { code: 'EXECUTION_NOT_FOUND', status: 404 })
  })

  test('a lost answer is got by the same operation, and one execution results', async () => {
    const replayed: (string | null)[] = []
    // Passes everything on, and swallows the first answer.
    const proxy = await fake((seen, response) => {
      const headers = Object.fromEntries(
        Object.entries(seen.headers).filter(([name]) => name.startsWith('x-') || name === 'content-type'),
      )
      void fetch(sandbox.http + seen.url, {
        method: seen.method,
        headers: headers as Record<string, string>,
        body: seen.body,
      }).then(async (answer) => {
        replayed.push(answer.headers.get('x-idempotency-replayed'))
        if (replayed.length === 1) response.destroy()
        else response.writeHead(answer.status, { 'Content-Type': 'application/json' }).end(await answer.text())
      })
    })
    const order = intent()
    const answer = await connect(proxy.url).submitIntent(order)
    proxy.close()
    assert.equal(answer.status, 'accepted')
    assert.deepEqual(replayed, [null, 'true'])
    const execution = await dvp.waitForExecution(order.clientReference ?? '')
    assert.ok('reference' in answer && execution.reference === answer.reference)
    const types: string[] = []
    for await (const { event } of dvp.events({ intentId: order.intentId })) {
      types.push(event.type)
      if (event.isTerminal) break
    }
    assert.equal(types.filter((type) => type === 'intent.accepted').length, 1)
  })

  test('events are followed over a restart', async () => {
    const order = intent()
    await dvp.submitIntent(order)
    const seen = new Map<string, Event>()
    let cursor: string | undefined
    // A new follower for every event.
    for (let isOver = false; !isOver;) {
      for await (const followed of dvp.events({ since: cursor, intentId: order.intentId })) {
        const isNew = !seen.has(followed.event.id)
        seen.set(followed.event.id, followed.event)
        cursor = followed.cursor
        isOver = followed.event.isTerminal
        if (isNew) break
      }
    }
    const sequences = [...seen.values()].map(({ sequence }) => sequence)
    assert.deepEqual(
      sequences,
      sequences.map((_, index) => index + 1),
    )
  })

  test('a webhook is received and verified, during a rotation too', async () => {
    const deliveries: { headers: Record<string, string | string[] | undefined>; body: string }[] = []
    let arrived = () => {}
    // The sandbox trusts this certificate for receivers on this machine.
    const pem = readFileSync(`${directory}/webhook-listener.pem`)
    const receiver = createServer({ cert: pem, key: pem }, async (request, response) => {
      let body = ''
      for await (const part of request) body += String(part)
      deliveries.push({ headers: request.headers, body })
      response.writeHead(204).end()
      arrived()
    })
    await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve))
    const delivery = () => new Promise<void>((resolve) => (arrived = resolve))
    const url = `https://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`
    const { secret } = await dvp.registerWebhook({ url, subscribedTypes: ['payout.failed'] })
    let next = delivery()
    const { eventId } = await dvp.testWebhook({ type: 'payout.failed' })
    await next
    const event = verifyWebhook({ secret, ...deliveries[0]! })
    assert.deepEqual([event.id, event.type], [eventId, 'payout.failed'])

    const { nextSecret } = await dvp.rotateWebhookSecret()
    next = delivery()
    await dvp.testWebhook()
    await next
    for (const one of [secret, nextSecret])
      assert.equal(verifyWebhook({ secret: one, ...deliveries[1]! }).type, 'test.ping')
    const { 'svc-signature': _form, ...standard } = deliveries[1]!.headers
    assert.equal(verifyWebhook({ secret: nextSecret, headers: standard, body: deliveries[1]!.body }).type, 'test.ping')
    assert.throws(
      () => verifyWebhook({ secret, ...deliveries[1]!, body: deliveries[1]!.body.replace('ping', 'pong') }),
      /no signature/,
    )
    receiver.close()
    receiver.closeAllConnections()
  })

  test('reports are read to their last page', async () => {
    const day = new Date().toISOString().slice(0, 10)
    let pages = 0
    for await (const page of dvp.dailyReconciliation(day)) {
      assert.equal(page.date, day)
      pages += 1
    }
    assert.ok(pages > 0)
    assert.ok((await dvp.pairs()).some(({ pair, baseExponent }) => pair === 'USDC/USD' && baseExponent === 6))
    assert.equal(
      (await dvp.request<{ notFound: string[] }>('GET', '/v1/executions', { query: { reference: ['a', 'b'] } }))
        .notFound.length,
      2,
    )
  })
})
