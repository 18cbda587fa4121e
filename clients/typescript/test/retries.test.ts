import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { inspect } from 'node:util'

import { ApiError, Client, type Intent, NoAnswerError, UnexpectedAnswerError, fiat, signRequest } from '../src/index.js'
import { type Script, drop, error, fake, json } from './fake.js'

const apiKey = 'svc_test_hidden'
const signingSecret = 'secret-hidden'

const intent: Intent = {
  intentId: 'i-1',
  user: 'me',
  inputAsset: fiat('USD'),
  outputAsset: fiat('EUR'),
  inputAmountMinor: '100',
  minOutputAmountMinor: '1',
  deadline: 1795284000000,
  settlementType: 'offchain',
}
const accepted = json(202, { intentId: 'i-1', status: 'accepted' })

/** Submits the intent to a server with these answers. */
async function submit(scripts: Script[], retryForMs = 60_000) {
  const server = await fake(...scripts)
  const logged: string[] = []
  const client = new Client({
    baseUrl: server.url,
    apiKey,
    signingSecret,
    retryForMs,
    log: (line) => logged.push(line),
  })
  const result: unknown = await client.submitIntent(intent).catch((failed: unknown) => failed)
  server.close()
  // Whatever happens, nothing that is printed has a secret in it.
  const printed = inspect([client, result, logged], { depth: 9, showHidden: true })
  assert.doesNotMatch(printed, /hidden/)
  return { result, seen: server.seen, logged }
}

/** The outcome is an error of this class, after this many attempts. */
async function fails<E>(
  scripts: Script[],
  attempts: number,
  kind: new (...args: never[]) => E,
  retryForMs?: number,
): Promise<E> {
  const { result, seen } = await submit(scripts, retryForMs)
  assert.ok(result instanceof kind, inspect(result))
  assert.equal(seen.length, attempts)
  return result
}

async function succeeds(scripts: Script[]) {
  const { result, seen, logged } = await submit(scripts)
  assert.equal((result as { status?: string }).status, 'accepted', inspect(result))
  assert.equal(seen.length, scripts.length)
  return { seen, logged }
}

const html: Script = (_, response) =>
  response.writeHead(200, { 'Content-Type': 'text/html' }).end('<html>sign in</html>')
const cut: Script = (_, response) =>
  response.writeHead(202, { 'Content-Type': 'application/json' }).end('{"intentId": "i-')
const short: Script = (_, response) => {
  response.writeHead(202, { 'Content-Type': 'application/json', 'Content-Length': '99' }).write('{')
  setTimeout(() => response.destroy(), 50)
}

describe('an operation', { concurrency: true }, () => {
  test('is sent again with the same key and bytes, and a fresh signature', async () => {
    const { seen, logged } = await succeeds([drop, accepted])
    const [first, second] = seen.map(({ headers, body }) => ({ headers, body }))
    assert.equal(first!.body, second!.body)
    assert.match(String(first!.headers['x-idempotency-key']), /^[0-9a-f-]{36}$/)
    assert.equal(first!.headers['x-idempotency-key'], second!.headers['x-idempotency-key'])
    assert.notEqual(first!.headers['x-nonce'], second!.headers['x-nonce'])
    for (const { headers, body } of [first!, second!]) {
      const [at, nonce] = [String(headers['x-timestamp']), String(headers['x-nonce'])]
      assert.equal(headers['x-signature'], signRequest(signingSecret, 'POST', '/v1/intents', at, nonce, body))
    }
    assert.match(logged[0] ?? '', /no answer .* sent again/)
  })

  test('waits at least as long as Retry-After says', async () => {
    for (const script of [
      error(503, 'SERVICE_UNAVAILABLE', {}, { 'Retry-After': '2' }),
      error(409, 'IDEMPOTENCY_KEY_PROCESSING', {}, { 'Retry-After': '2' }),
    ]) {
      const began = Date.now()
      await succeeds([script, accepted])
      assert.ok(Date.now() - began >= 2_000)
    }
  })

  test('ends when Retry-After is longer than its time', async () => {
    const failed = await fails([error(429, 'RATE_LIMIT_EXCEEDED', {}, { 'Retry-After': '3000' })], 1, ApiError)
    assert.equal(failed.retryAfter, 3000)
  })

  test('is not sent again when the service has refused it', async () => {
    for (const [status, code] of [
      [400, 'INVALID_PARAMETER'],
      [403, 'INSUFFICIENT_SCOPE'],
      [409, 'IDEMPOTENCY_KEY_CONFLICT'],
      [409, 'ALREADY_EXISTS'],
      [422, 'INSUFFICIENT_LIQUIDITY'],
    ] as const) {
      const failed = await fails([error(status, code, { param: 'permit.nonce' })], 1, ApiError)
      assert.deepEqual(
        [failed.status, failed.code, failed.param, failed.requestId],
        [status, code, 'permit.nonce', 'r-1'],
      )
      assert.match(failed.docUrl, /^http:.*\/docs\/errors\//)
    }
  })

  test('may be rejected, which is an outcome', async () => {
    const rejected = { intentId: 'i-1', status: 'rejected', reason: 'no_liquidity', detail: 'none' }
    for (const status of [422, 202]) assert.deepEqual((await submit([json(status, rejected)])).result, rejected)
  })

  test('outlasts pages of proxies, cut answers and broken connections', async () => {
    const bad: Script = (_, response) => response.writeHead(502, { 'Content-Type': 'text/html' }).end('Bad Gateway')
    for (const script of [html, cut, short, bad]) await succeeds([script, accepted])
  })

  test('says when its outcome is not known, with the key to go on', async () => {
    const lost = await fails([drop], 1, NoAnswerError, 500)
    const page = await fails([html], 1, UnexpectedAnswerError, 500)
    for (const failed of [lost, page]) assert.match(failed.idempotencyKey ?? '', /^[0-9a-f-]{36}$/)
  })

  test('follows no redirect', async () => {
    const other = await fake(accepted)
    const away: Script = (_, response) => response.writeHead(307, { Location: `${other.url}/v1/intents` }).end()
    await fails([away], 1, UnexpectedAnswerError)
    assert.equal(other.seen.length, 0)
    other.close()
  })

  test('takes no answer that is about something else', async () => {
    for (const body of [
      { intentId: 'i-2', status: 'accepted' },
      { intentId: 'i-1', status: 'done' },
      { intentId: 'i-1', status: 'rejected' },
      { success: false, intentId: 'i-1', status: 'accepted' },
    ]) {
      await fails([json(202, body)], 1, UnexpectedAnswerError)
    }
    await fails([json(404, { message: 'no route' })], 1, UnexpectedAnswerError)
  })

  test('changes no prototype', async () => {
    const text =
      '{"intentId":"i-1","status":"accepted","__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}'
    const { result } = await submit([
      (_, response) => response.writeHead(202, { 'Content-Type': 'application/json' }).end(text),
    ])
    assert.equal((result as { status: string }).status, 'accepted')
    assert.equal(({} as { polluted?: boolean }).polluted, undefined)
    const forged = '{"__proto__":{"intentId":"i-1","status":"accepted"}}'
    await fails(
      [(_, response) => response.writeHead(202, { 'Content-Type': 'application/json' }).end(forged)],
      1,
      UnexpectedAnswerError,
    )
  })

  test("uses the service's time once it is told that its own is wrong, and says so", async () => {
    const ahead = new Date(Date.now() + 600_000)
    const refused = error(401, 'INVALID_SIGNATURE', { param: 'X-Timestamp' }, { Date: ahead.toUTCString() })
    const { seen, logged } = await succeeds([refused, accepted])
    const [before, after] = seen.map(({ headers }) => Number(headers['x-timestamp']))
    assert.ok(Math.abs(after! - before! - 600) <= 10)
    assert.match(logged[0] ?? '', /clock is -(59|60)\d s ahead/)
    assert.equal(seen[0]!.headers['x-idempotency-key'], seen[1]!.headers['x-idempotency-key'])
    await fails([refused], 2, ApiError)
  })

  test('is signed anew once, for whatever reason the signature was refused', async () => {
    await fails([error(401, 'INVALID_SIGNATURE', { param: 'X-Signature' })], 2, ApiError)
  })

  test('is not tried at all when it cannot be sent', async () => {
    const client = new Client({ baseUrl: 'http://127.0.0.1:1', apiKey })
    await assert.rejects(client.submitIntent(intent), /needs the signingSecret/)
    for (const wrong of [
      { baseUrl: 'dvp.example.com' },
      { baseUrl: 'http://' },
      { apiKey: 'hidden\n' },
      { apiKey: '' },
    ]) {
      assert.throws(
        () => new Client({ baseUrl: 'http://127.0.0.1:1', apiKey, ...wrong }),
        (failed) => failed instanceof TypeError && !inspect(failed).includes('hidden\n'),
      )
    }
  })

  test('ends when its caller gives it up', async () => {
    const server = await fake(drop)
    const client = new Client({ baseUrl: server.url, apiKey, log: () => {} })
    await assert.rejects(client.chains(AbortSignal.timeout(200)), { name: /AbortError|TimeoutError/ })
    server.close()
  })

  test('of webhooks has the other header for its key', async () => {
    const server = await fake(json(202, { eventId: 'evt_1' }))
    await new Client({ baseUrl: `${server.url}/`, apiKey }).testWebhook({}, { idempotencyKey: 'k-1' })
    server.close()
    assert.equal(server.seen[0]!.headers['idempotency-key'], 'k-1')
    assert.equal(server.seen[0]!.headers['x-idempotency-key'], undefined)
  })
})
