-- Neovim's own LSP transport, vim.lsp.rpc, against our server over its standard streams.
--
-- The environment has the settings as JSON (INTEROP_SETTINGS: `task`, `command`, `slow`) and the file for the one JSON
-- document of what was seen (INTEROP_REPORT).

local CANDIDATES = "sessionReferenceResolver/candidates"
local PREPARE = "sessionReferenceResolver/prepare"
local AGENT = "a foreign host"
local PATIENCE_MS = 60000
local ATTEMPTS = 5

local settings = vim.json.decode(vim.env.INTEROP_SETTINGS)
local exit_code = nil
local faults = {}
local dispatchers = {
  on_exit = function(code) exit_code = code end,
  on_error = function(kind, fault) table.insert(faults, { kind = kind, fault = vim.inspect(fault) }) end,
}

local function start()
  local arguments = vim.list_slice(settings.command, 2)
  -- Newer releases take the whole command as a list, older ones the program and its arguments.
  local ok, client = pcall(vim.lsp.rpc.start, settings.command, dispatchers)
  return ok and client or vim.lsp.rpc.start(settings.command[1], arguments, dispatchers)
end

local client = start()

local function wait_for(condition, what)
  assert(vim.wait(PATIENCE_MS, condition, 5), what .. " did not happen")
end

-- Several requests may go out before the first answer: they come to the server in one write.
local function send(method, params)
  local request = { answered = false, done = false }
  local sent, id = client.request(method, params, function(failure, result)
    request.answered, request.failure, request.result = true, failure, result
  end, function() request.done = true end)
  assert(sent, method .. " was not sent")
  request.id = id
  return request
end

local function call(method, params)
  local request = send(method, params)
  wait_for(function() return request.answered end, "an answer to " .. method)
  return request
end

local function failure_of(request)
  local failure = request.failure or {}
  return { code = failure.code, message = failure.message, data = failure.data }
end

local function slow_request()
  local references = vim.tbl_map(function(id) return { sessionId = id } end, settings.slow)
  return { agentId = AGENT, content = "x", references = references }
end

local tasks = {}

function tasks.calls()
  local initialize = call("initialize", { clientInfo = { name = "interop/neovim" } })
  local candidates = call(CANDIDATES, { agentId = AGENT, query = "projects/" })
  local content = "Look at " .. candidates.result[1].mention .. ", please."
  local prepare = send(PREPARE, { agentId = AGENT, content = content })
  local unknown = send(PREPARE, { agentId = AGENT, content = "x", references = { { sessionId = "nobody" } } })
  wait_for(function() return prepare.answered and unknown.answered end, "two answers")
  return {
    initialize = initialize.result,
    candidates = candidates.result,
    prepare = prepare.result,
    unknown = failure_of(unknown),
    ids = { initialize.id, candidates.id, prepare.id, unknown.id },
  }
end

-- It keeps -32800 to itself: the request is over, but its callback is never called.
function tasks.cancels()
  local outcomes = {}
  local swallowed = false
  while #outcomes < ATTEMPTS and not swallowed do
    local slow = send(PREPARE, slow_request())
    call("initialize", {})
    client.notify("$/cancelRequest", { id = slow.id })
    wait_for(function() return slow.done end, "the end of a request")
    -- The callback is scheduled after the end of the request is: one more round trip, and it has been called.
    call("initialize", {})
    swallowed = not slow.answered
    table.insert(outcomes, swallowed and "swallowed" or (slow.failure and "failed" or "result"))
  end
  return { during = outcomes }
end

local ok, seen = pcall(function() return tasks[settings.task]() end)
if ok then
  call("shutdown")
  client.notify("exit")
  wait_for(function() return exit_code ~= nil end, "the exit of the server")
end
local version = vim.version()
local document = ok and seen or { problem = tostring(seen) }
document.exitCode = exit_code
document.faults = #faults > 0 and faults or vim.empty_dict()
document.version = string.format("%d.%d.%d", version.major, version.minor, version.patch)
local file = assert(io.open(vim.env.INTEROP_REPORT, "w"))
file:write(vim.json.encode(document))
file:close()
vim.cmd("qall!")
