import type { ReactNode } from "react";
import { flushSync } from "react-dom";
import { assume, identity, type Identity } from "../shell/identity";
import { goTo } from "../shell/router";
import type { Settings } from "../shell/settings";
import { OtherRequest, sentClaps, type Post } from "./other-request";
import { appears, fill, find, showOperation, shownData } from "./screen";

export type Credentials = NonNullable<Settings["tour"]>;

/** What the user does in a step. */
export interface Action {
  text: ReactNode;
  extra?: ReactNode;
  /** The button to press, or null while it does not exist. */
  target: () => HTMLButtonElement | null;
  isDone: () => boolean;
}

export interface Step {
  title: string;
  page: string;
  about: ReactNode;
  /** Open the page, and prepare it for the first action. */
  prepare: (credentials: Credentials, signal: AbortSignal) => Promise<void>;
  actions: Action[];
  /** Selector of the part of the page that shows the result. */
  shown: string;
  /** What the result shows. */
  result: ReactNode;
}

const QUERY = `query Blogs {
  blogCollection {
    edges {
      node {
        name
        owner { firstName }
        blogPostCollection { edges { node { title wordCount } } }
      }
    }
  }
}`;

const MUTATION = `mutation Describe {
  own: updateBlogCollection(
    filter: { id: { eq: 1 } }
    set: { description: "Databases by the sea, toured" }
    atMost: 1
  ) { affectedCount records { description } }
  other: updateBlogCollection(
    filter: { id: { eq: 3 } }
    set: { description: "Taken over" }
    atMost: 1
  ) { affectedCount records { description } }
}`;

const SUBSCRIPTION = `subscription Claps {
  blogPostCollection(filter: { title: { eq: "One round trip" } }) {
    edges { node { id title claps } }
  }
}`;

const run = () => find<HTMLButtonElement>('.graphiql-execute-button[aria-label^="Execute"]');
const claps = () => Number(shownData<Post>()?.blogPostCollection?.edges[0]?.node.claps);

const button = (text: string) => find<HTMLButtonElement>("main button", text);

async function openEditor(who: Pick<Identity, "kind" | "token">, operation: string, signal: AbortSignal): Promise<void> {
  await null; // React cannot render synchronously during an effect
  goTo("graphql");
  const { apiKey, token } = identity.get();
  if (token !== who.token) flushSync(() => assume({ ...who, apiKey }));
  await showOperation(operation, signal);
}

async function openReceiver({ webhooks }: Credentials, signal: AbortSignal): Promise<void> {
  goTo("webhooks", { parameters: { part: "receiver" } });
  const field = await appears(() => find<HTMLInputElement>(".sign-in input") ?? (find(".hooks-tabs") && "signed in"), signal);
  if (field === "signed in") return;
  fill(field, webhooks);
  field.form!.requestSubmit();
  await appears(() => find(".hooks-tabs"), signal);
}

export const STEPS: Step[] = [
  {
    title: "Query",
    page: "graphql",
    shown: ".result-window",
    about: "The editor contains a query: all blogs with their owners and posts. You send it as an anonymous caller.",
    prepare: (_credentials, signal) => openEditor({ kind: "anonymous", token: "" }, QUERY, signal),
    actions: [
      {
        text: <>Run it: press the marked button, or <kbd>Ctrl</kbd>+<kbd>Enter</kbd> in the editor.</>,
        target: run,
        isDone: () => shownData<{ blogCollection: object }>()?.blogCollection !== undefined,
      },
    ],
    result: (
      <>
        The result has the shape of the query: tables and foreign keys are fields, and PostgreSQL built this JSON in one round trip. Ada's
        draft “On indexes” is missing, because a policy shows drafts only to their authors.
      </>
    ),
  },
  {
    title: "Mutation",
    page: "graphql",
    shown: ".result-window",
    about: <>You are now signed in as account 1, Ada. The mutation changes the description of two blogs: Ada's own, and Bruno's.</>,
    prepare: ({ user }, signal) => openEditor({ kind: "user", token: user }, MUTATION, signal),
    actions: [
      {
        text: "Run it.",
        target: run,
        isDone: () => shownData<{ other: object }>()?.other !== undefined,
      },
    ],
    result: (
      <>
        <code>affectedCount</code> is 1 for Ada's blog and 0 for Bruno's. The policy <code>owners_write</code> lets users change only their own
        rows. PostgreSQL's row level security decides this: neither the daemon nor the console contains such a rule.
      </>
    ),
  },
  {
    title: "Live query",
    page: "graphql",
    shown: ".result-window",
    about: "A subscription is a query that stays open. You receive its result again whenever it changes.",
    prepare: ({ user }, signal) => {
      sentClaps.set(null);
      return openEditor({ kind: "user", token: user }, SUBSCRIPTION, signal);
    },
    actions: [
      {
        text: "Run the subscription.",
        target: run,
        isDone: () => claps() >= 0,
      },
      {
        text: "Change a row with a second request, and watch the result.",
        extra: <OtherRequest shown={claps} />,
        target: () => find<HTMLButtonElement>(".tour-request button"),
        isDone: () => sentClaps.get() !== null && claps() === sentClaps.get(),
      },
    ],
    result: "The new number of claps arrived in the open subscription. The line above the editor names the value that changed. Any change counts, whether it comes from REST, GraphQL or psql.",
  },
  {
    title: "Webhook",
    page: "webhooks",
    shown: ".deliveries",
    about: "Webhooks send signed events to a URL. The daemon has a receiver for trying them, and you are signed in with the demo's token.",
    prepare: openReceiver,
    actions: [
      {
        text: "Create a receiver.",
        target: () => button("Create a receiver") ?? (find("main .notice", "The receiver is gone") && button("Forget it")),
        isDone: () => button("Create an endpoint for it") !== null || button("Send a test event") !== null,
      },
      {
        text: "Create an endpoint, which sends all events of the project to the receiver.",
        target: () => button("Create an endpoint for it"),
        isDone: () => button("Send a test event") !== null,
      },
      {
        text: "Send a test event.",
        target: () => button("Send a test event"),
        isDone: () => find(".received .badge", "Signature valid") !== null,
      },
      {
        text: "The event arrived, and its signature is valid. Now open the history of deliveries.",
        target: () => find<HTMLButtonElement>(".hooks-tabs button", "Deliveries"),
        isDone: () => find('.deliveries .badge[data-kind="good"]') !== null,
      },
    ],
    result: "The history records every attempt, and failed ones are repeated. Select a delivery to see its signature, headers, body and response.",
  },
];
