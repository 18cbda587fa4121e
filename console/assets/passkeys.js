// Forms with a passkey: the browser signs a challenge of the console, and the form is sent with its answer.
"use strict";
const problems = {
  NotAllowedError: "The passkey was not used: it was cancelled, took too long, or is not on this device.",
  InvalidStateError: "This device has a passkey for you already.",
  SecurityError: "Passkeys cannot be used at this address. Open the console by its host name.",
};
for (const form of document.querySelectorAll("form[data-passkey]")) {
  const problem = form.querySelector("[data-problem]");
  const button = form.querySelector("button[type=submit]");
  const answer = form.querySelector("[data-answer]");
  const show = (text) => { problem.textContent = text; problem.hidden = !text; };
  const sign = async () => {
    if (!window.PublicKeyCredential || !PublicKeyCredential.parseRequestOptionsFromJSON) {
      throw new Error("This browser has no passkeys here. They need a current browser and https, or localhost.");
    }
    const response = await fetch(form.dataset.challenge, { method: "POST", redirect: "error" });
    if (!response.ok) throw new Error(await response.text() || "The console gave no challenge. Try again.");
    const options = await response.json();
    const credential = form.dataset.passkey === "create"
      ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) })
      : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
    return JSON.stringify(credential.toJSON());
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    show("");
    try {
      answer.value = await sign();
      form.submit();
    } catch (error) {
      show(problems[error.name] || error.message);
      button.disabled = false;
    }
  });
}
