/** Tools for the AI SDK; calls that need approval end the run with a `tool-approval-request`. */

import { dynamicTool, jsonSchema, type ModelMessage, type ToolSet } from "ai";

import { type CallResult, SkillhouseClient, SkillhouseError } from "./client.ts";
import { Kept } from "./kept.ts";

/**
 * Returns the tools for `tools:` of `generateText`, `streamText` and `ToolLoopAgent`.
 *
 * A run whose content has a `tool-approval-request` goes on with its messages and a
 * `tool-approval-response`, also in another process.
 *
 * @throws SkillhouseError the service cannot be reached, or refuses the token.
 */
export async function skillhouseTools(client: SkillhouseClient): Promise<ToolSet> {
  const tools: ToolSet = {};
  for (const { name, description, parameters } of await client.tools()) {
    const one = new GatedTool(client, name);
    tools[name] = dynamicTool({
      description,
      inputSchema: jsonSchema(parameters),
      needsApproval: (input, { toolCallId, messages }) =>
        one.needsApproval(input, toolCallId, messages),
      execute: (input, { toolCallId, messages, abortSignal }) =>
        one.execute(input, toolCallId, messages, abortSignal),
    });
  }
  return tools;
}

/**
 * Denies in skillhouse what the user denied in the last message, since the AI SDK runs no tool
 * then. Without it those questions stay open until they expire.
 */
export async function answerDenied(
  client: SkillhouseClient,
  messages: readonly ModelMessage[],
): Promise<void> {
  for (const [toolCallId, response] of responses(messages)) {
    const toolName = callsOf(messages).get(toolCallId);
    if (response.approved || toolName === undefined) continue;
    const question = await client.askedAbout(toolName, toolCallId);
    if (question !== undefined) await client.answer(question, "no", response.reason);
  }
}

class GatedTool {
  readonly #client: SkillhouseClient;
  readonly #name: string;
  readonly #asked = new Kept<string>();
  readonly #done = new Kept<CallResult>();

  constructor(client: SkillhouseClient, name: string) {
    this.#client = client;
    this.#name = name;
  }

  /**
   * Opens the question about a call before it is made, so that the approval is bound to it.
   *
   * Only a call that would be asked about is made here. If the gate then allows it, since it was
   * approved elsewhere, `execute` returns that result.
   */
  async needsApproval(
    input: unknown,
    callId: string,
    messages: readonly ModelMessage[],
  ): Promise<boolean> {
    if (!this.#client.asks) return false;
    // The AI SDK asks again about what the user has approved. No question is opened then: an
    // approval counts for the question that there was when the user was asked.
    if (callsOf(messages).has(callId)) return true;
    try {
      if (!(await this.#client.wouldAsk(this.#name, input))) return false;
      const result = await this.#client.call(this.#name, input, { callId });
      if (result.status !== "pending" || result.approval_id === null) {
        this.#done.keep(callId, result);
        return false;
      }
      const question = await this.#client.question(result.approval_id);
      if (question.out_of_band_only) return false;
      this.#asked.keep(callId, question.id);
      return true;
    } catch (error) {
      // `execute` meets the same, as an error of the tool.
      if (error instanceof SkillhouseError) return false;
      throw error;
    }
  }

  async execute(
    input: unknown,
    callId: string,
    messages: readonly ModelMessage[],
    signal: AbortSignal | undefined,
  ): Promise<string> {
    const done = this.#done.take(callId);
    if (done !== undefined) return done.content;
    const options = { callId, signal };
    if (!responses(messages).get(callId)?.approved) {
      return (await this.#client.call(this.#name, input, options)).content;
    }
    const asked =
      this.#asked.take(callId) ?? (await this.#client.askedAbout(this.#name, callId))?.id ?? "";
    return (await this.#client.allowed(this.#name, input, asked, options)).content;
  }
}

interface Response {
  readonly approved: boolean;
  readonly reason?: string;
}

/** The names of the tools that an assistant has called, by the ids of the calls. */
function callsOf(messages: readonly ModelMessage[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const message of messages) {
    if (message.role !== "assistant" || typeof message.content === "string") continue;
    for (const part of message.content) {
      if (part.type === "tool-call") found.set(part.toolCallId, part.toolName);
    }
  }
  return found;
}

/** The answers in the last message, by the ids of the calls that they are about. */
function responses(messages: readonly ModelMessage[]): Map<string, Response> {
  const calls = new Map<string, string>();
  for (const message of messages) {
    if (message.role !== "assistant" || typeof message.content === "string") continue;
    for (const part of message.content) {
      if (part.type === "tool-approval-request") calls.set(part.approvalId, part.toolCallId);
    }
  }
  const found = new Map<string, Response>();
  const last = messages.at(-1);
  if (last?.role !== "tool") return found;
  for (const part of last.content) {
    if (part.type !== "tool-approval-response") continue;
    const callId = calls.get(part.approvalId);
    if (callId !== undefined) found.set(callId, part);
  }
  return found;
}
