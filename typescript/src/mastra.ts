/** Tools for Mastra; calls that need approval suspend the run with their question. */

import { randomUUID } from "node:crypto";

import { createTool } from "@mastra/core/tools";

import type { CallOptions, Question, SkillhouseClient } from "./client.ts";

/** What a suspended call asks, in the `suspendPayload` of a `tool-call-suspended`. */
export interface SuspendedQuestion {
  readonly question: Pick<Question, "id" | "title" | "reasons" | "facts">;
  /** Goes back with the answer: a model cannot know it when it writes a call. */
  readonly nonce: string;
}

/** The user's answer, as the data with which the run is resumed. */
export interface SuspendedAnswer {
  readonly approved: boolean;
  readonly nonce: string;
  readonly reason?: string;
}

/** What Mastra gives a tool, as far as it is used here. */
interface ToolContext {
  readonly abortSignal?: AbortSignal | undefined;
  readonly agent?: {
    readonly toolCallId: string;
    readonly suspend: (payload: SuspendedQuestion) => Promise<void>;
    readonly resumeData?: unknown;
    readonly suspendPayload?: unknown;
  };
}

/**
 * Returns the tools for `new Agent({ tools })`.
 *
 * A suspended run goes on with `resumeGenerate` or `resumeStream` and a `SuspendedAnswer`, also in
 * another process where the `Mastra` of the agent has storage. Leave `autoResumeSuspendedTools` off:
 * with it a model answers.
 *
 * @throws SkillhouseError the service cannot be reached, or refuses the token.
 */
export async function skillhouseTools(client: SkillhouseClient) {
  const tools = (await client.tools()).map(({ name, description, parameters }) =>
    createTool({
      id: name,
      description,
      inputSchema: parameters,
      execute: (input: unknown, context: ToolContext) => execute(client, name, input, context),
    }),
  );
  return Object.fromEntries(tools.map((tool) => [tool.id, tool]));
}

async function execute(
  client: SkillhouseClient,
  name: string,
  input: unknown,
  { abortSignal, agent }: ToolContext,
): Promise<string | undefined> {
  const options: CallOptions = { callId: agent?.toolCallId ?? "", signal: abortSignal };
  const asked = agent?.suspendPayload as SuspendedQuestion | undefined;
  const answer = agent?.resumeData as SuspendedAnswer | undefined;
  // INVARIANT: only who has seen the question answers it. Mastra takes `resumeData` from the
  // arguments of a call before the user's, so that a model could say yes where the user said no.
  if (asked !== undefined && answer?.nonce === asked.nonce) {
    if (answer.approved === true) {
      return (await client.allowed(name, input, asked.question.id, options)).content;
    }
    await client.answer(await client.question(asked.question.id), "no", answer.reason);
    return `not approved: refused${answer.reason ? `: ${answer.reason}` : ""}`;
  }
  const result = await client.call(name, input, options);
  if (agent === undefined || !client.asks || result.status !== "pending" || !result.approval_id) {
    return result.content;
  }
  const { id, title, reasons, facts, out_of_band_only } = await client.question(result.approval_id);
  if (out_of_band_only) return result.content;
  await agent.suspend({ question: { id, title, reasons, facts }, nonce: randomUUID() });
  return undefined;
}
