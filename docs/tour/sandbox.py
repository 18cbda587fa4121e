"""What both tours share: the ready file, the chain, and a wallet's permit."""
import json
import time
import urllib.request

from eth_account import Account

AMOUNT = 100_000_000  # 100 USDC


def load(directory):
    with open(f"{directory}/sandbox.json") as ready:
        return json.load(ready)


def rpc(sandbox, method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = urllib.request.Request(sandbox["chain"]["rpcUrl"], body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["result"]


def permit(sandbox, wallet):
    """A PermitSingle for 100 USDC, signed by one of the sandbox's wallets."""
    chain, contracts = sandbox["chain"], sandbox["chain"]["contracts"]
    owner = chain["wallets"][wallet]
    token = chain["tokens"][0]["address"]
    # nonces(address) of the permit contract
    call = {"to": contracts["permit"], "data": "0x7ecebe00" + owner["address"][2:].lower().rjust(64, "0")}
    nonce = int(rpc(sandbox, "eth_call", [call, "latest"]), 16)
    deadline = int(time.time()) + 7200
    fields = [("token", "address"), ("amount", "uint256"), ("spender", "address"), ("nonce", "uint256"),
              ("deadline", "uint256")]
    signed = Account.sign_typed_data(
        owner["privateKey"],
        {"name": "Permit", "version": "1", "chainId": chain["chainId"], "verifyingContract": contracts["permit"]},
        {"PermitSingle": [{"name": name, "type": kind} for name, kind in fields]},
        {"token": token, "amount": AMOUNT, "spender": contracts["escrow"], "nonce": nonce, "deadline": deadline},
    )
    return {
        "token": token, "amountMinor": str(AMOUNT), "spender": contracts["escrow"], "nonce": str(nonce),
        "deadline": deadline, "signature": "0x" + bytes(signed.signature).hex(),
    }
