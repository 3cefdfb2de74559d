/** The HTTP API of a running `skillhouse up`, as far as tools of a framework need it. */

export interface Connection {
  /** Address of the service, such as `http://127.0.0.1:8600`. */
  readonly url: string;
  /** A token with the scopes `read` and `call`; calls are its agent's and user's. */
  readonly token: string;
  /**
   * A token with the scopes `read` and `approve`, of the same user, which gives the answers of the
   * framework's user. Without it a call that needs approval comes back as pending.
   */
  readonly approvalToken?: string;
}

export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
}

export interface CallResult {
  readonly status: "ok" | "error" | "denied" | "pending";
  /** The text for the model. */
  readonly content: string;
  readonly approval_id: string | null;
}

export interface Fact {
  readonly label: string;
  readonly value: string;
}

/** A question about one call; an answer to it is bound to `content_digest`. */
export interface Question {
  readonly id: string;
  readonly tool: string;
  readonly call_id: string;
  readonly title: string;
  readonly reasons: readonly string[];
  readonly facts: { readonly found: readonly Fact[]; readonly sent: readonly Fact[] };
  readonly content_digest: string;
  /** Whether only the page and paired devices decide it. */
  readonly out_of_band_only: boolean;
}

export interface CallOptions {
  /** The framework's id of the call, by which its question is found again. */
  readonly callId?: string;
  readonly approvalId?: string;
  /** Ends the call. */
  readonly signal?: AbortSignal | undefined;
}

type Arguments = Readonly<Record<string, unknown>>;

/** A request that skillhouse refused, or that did not reach it. */
export class SkillhouseError extends Error {
  override readonly name = "SkillhouseError";
  /** Of the answer; 0 where there was none. */
  readonly status: number;
  /** The stable code of the problem; empty where there is none. */
  readonly code: string;

  constructor(message: string, status = 0, code = "", cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
    this.code = code;
  }
}

export class SkillhouseClient {
  readonly #base: string;
  readonly #token: string;
  readonly #approvalToken: string;

  constructor(connection: Connection) {
    const { url, token, approvalToken = "" } = connection;
    this.#base = `${url.replace(/\/+$/, "").replace(/\/mcp$/, "")}/api/v1`;
    this.#token = token;
    this.#approvalToken = approvalToken;
  }

  /** Whether the framework's user may answer questions. */
  get asks(): boolean {
    return this.#approvalToken !== "";
  }

  async tools(): Promise<readonly ToolDefinition[]> {
    const found = await this.#send<{ tools: ToolDefinition[] }>("GET", "/tools");
    return found.tools;
  }

  /** Whether the gate would ask about a call as things are now; nothing is done or recorded. */
  async wouldAsk(tool: string, input: unknown): Promise<boolean> {
    const body = { tool, arguments: argumentsOf(input) };
    const found = await this.#send<{ effect: string }>("POST", "/calls/forecast", { body });
    return found.effect === "ask";
  }

  /** Makes one gated call. */
  async call(tool: string, input: unknown, options: CallOptions = {}): Promise<CallResult> {
    const { callId, approvalId, signal } = options;
    const body = {
      tool,
      arguments: argumentsOf(input),
      ends_on_disconnect: true,
      ...(callId ? { call_id: callId } : {}),
      ...(approvalId ? { approval_id: approvalId } : {}),
    };
    return this.#send<CallResult>("POST", "/calls", { body, signal });
  }

  /** The question with an id. */
  async question(id: string): Promise<Question> {
    const path = `/approvals/${encodeURIComponent(id)}`;
    return this.#send<Question>("GET", path, { token: this.#approvalToken });
  }

  /**
   * The open question about a framework's call; undefined where there is none, or more than one
   * since a model used an id twice.
   */
  async askedAbout(tool: string, callId: string): Promise<Question | undefined> {
    if (!this.asks || callId === "") return undefined;
    const found: Question[] = [];
    let next: string | null = "";
    while (next !== null) {
      const path: string = `/approvals${next ? `?cursor=${encodeURIComponent(next)}` : ""}`;
      const page: { approvals: Question[]; next: string | null } = await this.#send("GET", path, {
        token: this.#approvalToken,
      });
      found.push(...page.approvals);
      next = page.next;
    }
    const own = found.filter((one) => one.tool === tool && one.call_id === callId);
    return own.length === 1 ? own[0] : undefined;
  }

  /**
   * Answers a question as it was read: for another content it is no answer. One that was answered
   * elsewhere meanwhile stays so, and the gate says that to its call.
   */
  async answer(question: Question, answer: "once" | "no", message = ""): Promise<void> {
    const path = `/approvals/${encodeURIComponent(question.id)}/answer`;
    const body = {
      answer,
      content_digest: question.content_digest,
      ...(message ? { message: message.slice(0, 2_000) } : {}),
    };
    try {
      await this.#send("POST", path, { body, token: this.#approvalToken });
    } catch (error) {
      if (!(error instanceof SkillhouseError && error.status === 409)) throw error;
    }
  }

  /**
   * Approves one call for the framework's user, and makes it.
   *
   * The call is planned again first. If it is not the one of the question, since its arguments or
   * the files that it depends on have changed, nothing is approved and the result is pending.
   */
  async allowed(
    tool: string,
    input: unknown,
    approvalId: string,
    options: CallOptions = {},
  ): Promise<CallResult> {
    // Without the framework's id: its user has not seen a question that is opened here.
    const { signal } = options;
    const now = await this.call(tool, input, { signal });
    if (now.status !== "pending" || now.approval_id !== approvalId) return now;
    const question = await this.question(approvalId);
    if (question.out_of_band_only) return now;
    await this.answer(question, "once");
    return this.call(tool, input, { ...options, approvalId });
  }

  async #send<T>(
    method: string,
    path: string,
    request: { body?: unknown; token?: string; signal?: AbortSignal | undefined } = {},
  ): Promise<T> {
    const { body, token = this.#token, signal } = request;
    let response: Response;
    try {
      response = await fetch(this.#base + path, {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
        },
        // A token goes to no other address.
        redirect: "error",
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        ...(signal ? { signal } : {}),
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new SkillhouseError(`skillhouse at ${this.#base} did not answer`, 0, "", error);
    }
    const answer: unknown = await response.json().catch(() => undefined);
    if (response.ok) return answer as T;
    throw problem(response.status, answer);
  }
}

function problem(status: number, answer: unknown): SkillhouseError {
  const known = typeof answer === "object" && answer !== null ? answer : {};
  const { code = "", detail = "" } = known as { code?: string; detail?: string };
  const text =
    status === 401
      ? "skillhouse knows no such token, or it has ended: make one with `skillhouse tokens new`"
      : `skillhouse refused the request (${status}): ${detail || "no reason was given"}`;
  return new SkillhouseError(text, status, code);
}

/** What a model sent as arguments; what is no object in a form that the gate refuses. */
function argumentsOf(input: unknown): Arguments {
  const isObject = typeof input === "object" && input !== null && !Array.isArray(input);
  return isObject ? (input as Arguments) : { arguments: input ?? null };
}
