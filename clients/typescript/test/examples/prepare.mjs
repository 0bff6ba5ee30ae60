// Makes the examples with packages of their own ready to be tested: installs their packages where those of the lockfile
// aren't there yet, gives them our client as it is built, and builds their pages.
import { spawn } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";

const client = path.join(import.meta.dirname, "../.."), examples = path.join(client, "../../examples");

await Promise.all(["assistant-ui", "copilotkit"].map(async (name) => {
  const dir = path.join(examples, name), modules = path.join(dir, "node_modules");
  const run = (command, ...args) => new Promise((resolve, reject) => {
    console.log(`examples/${name}: ${command} ${args.join(" ")}`);
    const child = spawn(command, args, { cwd: dir, stdio: "inherit" });
    child.on("error", reject);
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`${command} ${args.join(" ")} in examples/${name}: exit code ${code}`))));
  });
  // scripts/setup makes and looks for the same marker.
  const marker = path.join(modules, `.installed-${crypto.createHash("sha256").update(fs.readFileSync(path.join(dir, "package-lock.json"))).digest("hex").slice(0, 16)}`);
  if (!fs.existsSync(marker)) {
    await run("npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts");
    fs.writeFileSync(marker, "");
  }
  const ours = path.join(modules, "@aguihub/client");
  fs.rmSync(ours, { recursive: true, force: true });
  for (const part of ["dist", "package.json"]) fs.cpSync(path.join(client, part), path.join(ours, part), { recursive: true });
  await run("npx", "--no-install", "vite", "build", "--logLevel", "error");
}));
