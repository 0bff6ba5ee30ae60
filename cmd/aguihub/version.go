package main

import (
	"runtime"
	"runtime/debug"

	"github.com/aguihub/aguihub/metrics"
)

// version is set by the linker for releases.
var version = "dev"

// builtFrom tells what this binary is.
func builtFrom() metrics.Build {
	b := metrics.Build{Version: version, Revision: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if version == "dev" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			b.Revision = s.Value[:12]
		}
	}
	return b
}
