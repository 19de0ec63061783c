// What every client from npm does with our server, whichever way it sends its requests.
//
// A script gets its settings as JSON in its only argument and prints one JSON document of what it saw; the Python side
// asserts. `call(method, params)` resolves to a result, or rejects with something that has `code`, `message`, `data`.

export const CANDIDATES = "sessionReferenceResolver/candidates";
export const PREPARE = "sessionReferenceResolver/prepare";
export const AGENT = "a foreign host";
export const ATTEMPTS = 5;

export const settings = JSON.parse(process.argv[2] ?? "{}");

/** Initialize, find a session, mention it, and fail at one that nobody has. */
export async function converse(call) {
  const initialize = await call("initialize", { clientInfo: { name: "interop" } });
  const candidates = await call(CANDIDATES, { agentId: AGENT, query: "" });
  const content = `Look at ${candidates[0].mention}, please.`;
  const prepare = await call(PREPARE, { agentId: AGENT, content });
  const unknown = await failureOf(call(PREPARE, unknownReference()));
  return { initialize, candidates, prepare, unknown };
}

export function unknownReference() {
  return { agentId: AGENT, content: "x", references: [{ sessionId: "nobody" }] };
}

/** A request that takes seconds. */
export function slowRequest() {
  return { agentId: AGENT, content: "x", references: settings.slow.map((sessionId) => ({ sessionId })) };
}

/**
 * Cancel slow requests until one is answered as cancelled; every outcome is returned.
 *
 * `start` sends a slow request and returns `{answer, cancel}`. Each is cancelled after a later request was answered:
 * the server has taken it then.
 */
export async function cancelUntilCancelled(call, start) {
  const outcomes = [];
  while (outcomes.length < ATTEMPTS && !outcomes.some((outcome) => "error" in outcome)) {
    const { answer, cancel } = start();
    const outcome = settled(answer);
    await call("initialize", {});
    cancel();
    outcomes.push(await outcome);
  }
  return outcomes;
}

/** `{error}` or `{result: true}`; results of slow requests are too large to be shown. */
export async function settled(answer) {
  try {
    await answer;
    return { result: true };
  } catch (error) {
    return { error: shown(error) };
  }
}

export async function failureOf(answer) {
  const { error } = await settled(answer);
  return error ?? null;
}

export function shown({ code, message, data }) {
  return { code, message, data };
}

/** `value` as JSON on standard output; lone surrogates are escaped. */
export function report(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** The WebSocket URL and the subprotocols of a printed URL, as a web page makes them. */
export function webSocketAddress(printed) {
  const url = new URL(printed);
  const token = new URLSearchParams(url.hash.slice(1)).get("token");
  return { url: `ws://${url.host}/rpc`, subprotocols: ["sessionref", `sessionref.token.${token}`] };
}

/** Resolves when a `ws` socket is open. */
export function opened(socket) {
  return new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
}

/** Resolves to the code that a `ws` socket was closed with. */
export function closed(socket) {
  return new Promise((resolve) => socket.once("close", resolve));
}
