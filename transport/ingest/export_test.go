package ingest

// Partial is how many bytes of events that haven't come complete are held.
func (s *Server) Partial() int64 { return s.partial.Load() }
