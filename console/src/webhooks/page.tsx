import { useStore } from "../kit/store";
import { useSettings } from "../shell/settings";
import { Hooks } from "./hooks";
import { session, signOut } from "./session";
import { SignIn } from "./sign-in";

export default function WebhooksPage() {
  const current = useStore(session);
  const { project, receivers } = useSettings();
  return (
    <div className="page webhooks">
      {current ? (
        <Hooks key={current.token} title="Webhooks" current={current} preferred={project} receivers={receivers}>
          <button type="button" className="button" onClick={() => signOut()}>Sign out</button>
        </Hooks>
      ) : (
        <>
          <h1>Webhooks</h1>
          <SignIn />
        </>
      )}
    </div>
  );
}
