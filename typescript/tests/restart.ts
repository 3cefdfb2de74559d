/** One of two processes: `ask FILE` ends at a question, and `answer FILE` goes on in another one. */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";

import { Agent } from "@mastra/core/agent";
import type { MastraModelConfig } from "@mastra/core/llm";
import { Mastra } from "@mastra/core/mastra";
import { InMemoryStore } from "@mastra/core/storage";
import type { WorkflowRunState } from "@mastra/core/workflows";
import { generateText, isStepCount, type ModelMessage } from "ai";

import { skillhouseTools } from "../src/ai-sdk.ts";
import { skillhouseTools as mastraTools, type SuspendedQuestion } from "../src/mastra.ts";
import { client, model, write, written } from "./service.ts";

const USER: ModelMessage = { role: "user", content: "do it" };
const [act, framework, file = ""] = process.argv.slice(2);
const target = `${framework}-restart.txt`;
const call = write(`${framework}-restart`, target, "Rain.\n");

interface KeptRun {
  readonly runId: string;
  readonly nonce: string;
  readonly runs: readonly { workflowName: string; runId: string; snapshot: WorkflowRunState }[];
}

async function aiSdk(): Promise<void> {
  const tools = await skillhouseTools(client());
  const common = { tools, stopWhen: isStepCount(5) };
  if (act === "ask") {
    const found = await generateText({ ...common, model: model(call), messages: [USER] });
    const asked = found.content.filter((part) => part.type === "tool-approval-request");
    assert.equal(asked.length, 1);
    const content = asked.map(({ approvalId }) => ({
      type: "tool-approval-response",
      approvalId,
      approved: true,
    }));
    const messages = [USER, ...found.responseMessages, { role: "tool", content }];
    await writeFile(file, JSON.stringify(messages));
  } else {
    const messages = JSON.parse(await readFile(file, "utf8")) as ModelMessage[];
    await generateText({ ...common, model: model(), messages });
  }
}

/** What Mastra's storage keeps of a suspended run goes from one process to the other as JSON. */
async function mastra(): Promise<void> {
  const storage = new InMemoryStore();
  const workflows = await storage.getStore("workflows");
  assert.ok(workflows);
  const made = new Agent({
    id: "helper",
    name: "helper",
    instructions: "Help.",
    model: (act === "ask" ? model(call) : model()) as unknown as MastraModelConfig,
    tools: await mastraTools(client()),
  });
  const agent = new Mastra({ agents: { helper: made }, storage, logger: false }).getAgent("helper");
  if (act === "ask") {
    const found = await agent.generate("do it");
    assert.equal(found.finishReason, "suspended");
    const { suspendPayload } = found.suspendPayload as { suspendPayload: SuspendedQuestion };
    const { runs } = await workflows.listWorkflowRuns();
    const kept = { runId: found.runId, nonce: suspendPayload.nonce, runs };
    await writeFile(file, JSON.stringify(kept));
  } else {
    const { runId, nonce, runs } = JSON.parse(await readFile(file, "utf8")) as KeptRun;
    for (const run of runs) await workflows.persistWorkflowSnapshot(run);
    await agent.resumeGenerate({ approved: true, nonce }, { runId });
  }
}

await (framework === "mastra" ? mastra() : aiSdk());
console.log((await written(target)) ?? "nothing");
