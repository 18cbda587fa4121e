import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

import { Wallet } from 'ethers'
import { privateKeyToAccount } from 'viem/accounts'

import {
  type Chain,
  type Receipt,
  type Signer,
  WebhookError,
  canonical,
  contentHash,
  contradiction,
  fromMinor,
  permitTypedData,
  signRequest,
  toMinor,
  verifyWebhook,
} from '../src/index.js'

const docs = `${process.env['DVP_ROOT'] ?? '../..'}/docs`
const api = readFileSync(`${docs}/api.md`, 'utf8')

/** The fenced blocks of a section of the guide. */
function blocks(section: string): { language: string; text: string }[] {
  const text = api.split(`\n## ${section}\n`)[1]?.split('\n## ')[0] ?? ''
  return [...text.matchAll(/```(\w*)\n([^]*?)\n```/g)].map(([, language = '', body = '']) => ({ language, text: body }))
}

const plain = (section: string) =>
  blocks(section)
    .filter(({ language }) => language === '')
    .map(({ text }) => text)

test("the guide's request is signed as it says", () => {
  const [message = '', signature] = plain('Signing')
  const secret = /With the secret `(\w+)`/.exec(api)?.[1] ?? ''
  const [, timestamp = '', nonce = '', body = ''] = /^POST\/v1\/intents(\d{10})(\w{32})(.*)$/.exec(message) ?? []
  assert.equal(signRequest(secret, 'POST', '/v1/intents', timestamp, nonce, body), signature)
})

test("the guide's permit is made and signed by viem and ethers as it says", async () => {
  const stated = JSON.parse(blocks('Signing a permit').find(({ language }) => language === 'json')?.text ?? '')
  const { domain, message } = stated
  const chain = { permitDomain: domain, contracts: { escrow: message.spender, anchor: '' } } as unknown as Chain
  const data = permitTypedData(chain, message.token, message.amount, message.nonce, message.deadline)
  assert.deepEqual(data, stated)
  const [key = '', , signature] = plain('Signing a permit')
  const wallet = new Wallet(key)
  const signers: Signer[] = [
    privateKeyToAccount(key as `0x${string}`).signTypedData,
    ({ domain, types, message }) => wallet.signTypedData(domain, { PermitSingle: types.PermitSingle }, message),
  ]
  for (const sign of signers) assert.equal(await sign(data), signature)
})

const receipt = (): Receipt =>
  JSON.parse(blocks('Verifying a receipt').find(({ language }) => language === 'json')?.text ?? '')

test("the guide's receipt has the canonical text and the hash that it says", () => {
  const [text, hash] = plain('Verifying a receipt')
  const { txHash: _txHash, finality: _finality, ...body } = receipt()
  assert.equal(canonical(body), text)
  assert.equal(contentHash(receipt()), hash)
})

test('a receipt adds up, and each changed number is found', () => {
  assert.equal(contradiction(receipt()), undefined)
  const wrong = (change: (body: Receipt) => void) => {
    const body = receipt()
    change(body)
    return contradiction(body)
  }
  assert.match(wrong((body) => (body.offramp!.fromAmountMinor = '99600000')) ?? '', /fromAmountMinor/)
  assert.match(wrong((body) => (body.offramp!.fxRate = '1.001')) ?? '', /fxRate/)
  assert.match(wrong((body) => (body.offramp!.fxRate = '1e0')) ?? '', /cannot be read/)
  assert.match(wrong((body) => (body.payout.amountMinor = '9936')) ?? '', /payout/)
  assert.match(wrong((body) => (body.fees[1]!.amountMinor = '9951')) ?? '', /payout/)
  assert.match(wrong((body) => (body.fees[1]!.exponent = 1e9)) ?? '', /cannot be read/)
  assert.match(wrong((body) => (body.fees[0]!.exponent = 5)) ?? '', /fromAmountMinor/)
  assert.match(wrong((body) => (body.fees[1]!.collection = 'absorbed')) ?? '', /payout/)
  // Without a fee in the input asset the exponent is found by trial.
  assert.equal(
    wrong((body) => void body.fees.shift()),
    undefined,
  )
  assert.equal(
    wrong((body) => (body.offramp = null)),
    undefined,
  )
})

test('keys are sorted by their bytes, at any depth', () => {
  assert.equal(
    canonical({ b: [{ d: 1, c: '"\u2028é' }], 'a\u{1F600}': null, 'a\uFFFD': true }),
    '{"a\uFFFD":true,"a\u{1F600}":null,"b":[{"c":"\\"\u2028é","d":1}]}',
  )
})

interface Case {
  name: string
  body: string
  secrets: string[]
  t: number
  svcSignature: string
  webhookId: string
  webhookSignature: string
}
const { cases } = JSON.parse(readFileSync(`${docs}/webhooks/vectors.json`, 'utf8')) as { cases: Case[] }

test('signatures of webhooks are verified in both forms, and any change is refused', () => {
  for (const { name, body, secrets, t, svcSignature, webhookId, webhookSignature } of cases) {
    const svc = { 'Svc-Signature': svcSignature }
    const standard = new Headers({
      'webhook-id': webhookId,
      'webhook-timestamp': String(t),
      'webhook-signature': webhookSignature,
    })
    for (const headers of [svc, standard]) {
      const now = t * 1_000
      // Bodies of two vectors are no events, which is said only after the signature.
      const genuine = (run: () => unknown) => {
        try {
          run()
        } catch (failed) {
          assert.match(String(failed), /is no event|is not JSON/, name)
        }
      }
      const refused = (run: () => unknown, why: RegExp) => assert.throws(run, why, name)
      for (const secret of secrets) genuine(() => verifyWebhook({ secret, headers, body, now }))
      genuine(() => verifyWebhook({ secret: ['whsec_AAAA', secrets[0]!], headers, body: Buffer.from(body), now }))
      genuine(() => verifyWebhook({ secret: [secrets[0]!, 'whsec_AAAA'], headers, body, now }))
      genuine(() => verifyWebhook({ secret: secrets, headers, body, now: now + 300_000 }))
      refused(() => verifyWebhook({ secret: secrets, headers, body, now: now + 301_000 }), /300 seconds/)
      refused(() => verifyWebhook({ secret: secrets, headers, body, now: now - 301_000 }), /300 seconds/)
      refused(() => verifyWebhook({ secret: secrets, headers, body: `${body} `, now }), /no signature/)
      refused(() => verifyWebhook({ secret: 'whsec_AAAA', headers, body, now }), /no signature/)
    }
  }
  const { body, secrets, t, svcSignature } = cases[0]!
  for (const value of [
    `${svcSignature},t=${t}`,
    '',
    't=1',
    'v1=00',
    `t=${t},t=${t},v1=00`,
    't=-1,v1=00',
    't=1e3,v1=00',
    `t=${t}`,
  ]) {
    assert.throws(
      () => verifyWebhook({ secret: secrets, headers: { 'svc-signature': value }, body, now: t * 1_000 }),
      WebhookError,
    )
  }
  assert.throws(() => verifyWebhook({ secret: secrets, headers: {}, body }), /not signed/)
  assert.throws(() => verifyWebhook({ secret: '', headers: {}, body }), TypeError)
  assert.throws(() => verifyWebhook({ secret: secrets, headers: {}, body: {} as string }), TypeError)
})

test('amounts become minor units and decimals again, without rounding', () => {
  for (const [decimal, exponent, minor] of [
    ['100', 6, '100000000'],
    ['0.01', 2, '1'],
    ['1.5', 18, '1500000000000000000'],
    ['7', 0, '7'],
  ] as const) {
    assert.equal(toMinor(decimal, exponent), minor)
  }
  assert.equal(fromMinor('1', 2), '0.01')
  assert.equal(fromMinor(1500000000000000000n, 18), '1.500000000000000000')
  assert.equal(fromMinor('7', 0), '7')
  for (const wrong of ['1.001', '-1', '+1', '1e3', '', '.5', '1.', ' 1', '1,5', '٣'])
    assert.throws(() => toMinor(wrong, 2), RangeError)
  assert.throws(() => toMinor(1.5 as unknown as string, 2), TypeError)
  assert.throws(() => fromMinor(150 as unknown as string, 2), RangeError)
  assert.throws(() => fromMinor('1', 2.5), RangeError)
})
