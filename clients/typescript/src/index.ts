export { Client, type ClientOptions, type Intent, type ReferenceOptions, type WaitOptions } from './client.js'
export { erc20, fiat, fromMinor, native, toMinor } from './amounts.js'
export * from './errors.js'
export { type Followed, type FollowOptions } from './events.js'
export { type PermitOptions, type PermitTypedData, type Signer, permitTypedData } from './permit.js'
export {
  type Verification, type VerifyOptions, canonical, contentHash, contradiction, verifyReceipt,
} from './receipt.js'
export { type CallOptions, signRequest } from './transport.js'
export type * from './api.js'
export { type Delivery, verifyWebhook } from './webhook.js'
