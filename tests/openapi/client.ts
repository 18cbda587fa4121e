// What a client with generated types writes: this must compile, and what is marked must not.
import type { components, operations, paths } from './api'

type Schemas = components['schemas']

const common = {
  intentId: 'i-1',
  user: 'me',
  inputAsset: { type: 'fiat', symbol: 'USD' },
  outputAsset: { type: 'fiat', symbol: 'EUR' },
  deadline: 1795284000000,
  settlementType: 'offchain',
} as const

export const byAmounts: Schemas['IntentRequest'] = { ...common, inputAmountMinor: '100', minOutputAmountMinor: '1' }
export const byBounds: Schemas['IntentRequest'] = {
  ...common,
  input: { limitAmountMinor: '100' },
  output: { targetAmountMinor: '90', limitAmountMinor: '90' },
}
// @ts-expect-error two amounts are no intent
export const amountsAlone: Schemas['IntentRequest'] = { inputAmountMinor: '100', minOutputAmountMinor: '1' }
// @ts-expect-error one of two amounts is missing
export const half: Schemas['IntentRequest'] = { ...common, inputAmountMinor: '100' }

// A call needs no header of the signature: those are security schemes.
type Create = operations['createIntent']['parameters']['header']
export const headers: Create = { 'X-Idempotency-Key': '6f1e2d3c-aaaa-4000-8000-00000000000b' }

export function describe(answer: Schemas['AcceptedIntent'] | Schemas['RejectedIntent'] | Schemas['Error']): string {
  if ('error' in answer) return answer.error.code
  return answer.status === 'rejected' ? answer.reason : answer.path.outputAmountMinor
}

export type Receipt = paths['/v1/executions/{reference}/receipt']['get']['responses'][200]['content']['application/json']
