// Package bridge makes any HTTP AG-UI agent durable. A [Bridge] knows agents by name; [Bridge.Start] takes a
// RunAgentInput, calls the agent, and publishes what it answers as a run of its own, whoever watches. It is the only
// package that speaks as a client of agents, and it calls none but those of its configuration.
//
// A run that was started ends with exactly one terminal event: the agent's own, or one that says what went wrong with it
// (the Code constants). An agent that is silent, slow or talks nonsense costs others nothing.
package bridge
