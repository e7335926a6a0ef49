-- The world of one policy: the whole of its Lua state. Loaded before the policy, once a state.
--
-- Lua gives strangers nothing but the functions below, and takes nothing from them but numbers, booleans and text: what
-- comes out went through `judge`, `announce` or `describe`. Everything used here was fetched before the policy could
-- change it, no method of a string is called, and no metamethod of a stranger's table is asked.

local error_bytes_max, depth_max = ...

local load, pcall, error, next, type, tostring = load, pcall, error, next, type, tostring
local rawget, rawlen, select, floor, huge = rawget, rawlen, select, math.floor, math.huge
local math_type, sub, byte, find, gsub, format = math.type, string.sub, string.byte, string.find, string.gsub, string.format
local concat, sort, utf8_len, codes = table.concat, table.sort, utf8.len, utf8.codes
local real_setmetatable = setmetatable

-- What is left of the library ---------------------------------------------------------------------------------------------

local KEPT = {
  _G = true, _VERSION = true, assert = true, error = true, ipairs = true, next = true, pairs = true, pcall = true,
  rawequal = true, rawget = true, rawlen = true, rawset = true, select = true, getmetatable = true, tonumber = true,
  tostring = true, type = true, xpcall = true,
  coroutine = {
    close = true, create = true, isyieldable = true, resume = true, running = true, status = true, wrap = true,
    yield = true,
  },
  math = {
    abs = true, acos = true, asin = true, atan = true, ceil = true, cos = true, deg = true, exp = true, floor = true,
    fmod = true, huge = true, log = true, max = true, maxinteger = true, min = true, mininteger = true, modf = true,
    pi = true, rad = true, random = true, sin = true, sqrt = true, tan = true, tointeger = true, type = true, ult = true,
  },
  string = {
    byte = true, char = true, find = true, format = true, gmatch = true, gsub = true, len = true, lower = true,
    match = true, rep = true, reverse = true, sub = true, upper = true,
  },
  table = { concat = true, insert = true, move = true, pack = true, remove = true, sort = true, unpack = true },
  utf8 = { char = true, charpattern = true, codepoint = true, codes = true, len = true, offset = true },
}

local function strip(library, kept)
  for name, value in next, library do
    if not kept[name] then
      library[name] = nil
    elseif type(kept[name]) == 'table' then
      strip(value, kept[name])
    end
  end
end

getmetatable('').__metatable = false
strip(_G, KEPT)

-- A finalizer would run whenever memory is looked through: outside of the call that made it.
function setmetatable(value, metatable)
  if type(metatable) == 'table' and rawget(metatable, '__gc') ~= nil then
    error('a policy can have no finalizers (__gc)', 2)
  end
  return real_setmetatable(value, metatable)
end

-- Helpers -----------------------------------------------------------------------------------------------------------------

local function text_of(value, who, place)
  if type(value) == 'number' then
    return tostring(value)
  elseif type(value) ~= 'string' then
    error(format("bad argument #%d to '%s' (text expected, got %s)", place, who, type(value)), 3)
  end
  return value
end

-- Characters as numbers; bytes where it is no UTF-8.
local function characters(text)
  local list, count = {}, 0
  if utf8_len(text) then
    for _, code in codes(text) do
      count = count + 1
      list[count] = code
    end
  else
    for place = 1, #text do
      list[place] = byte(text, place)
    end
    count = #text
  end
  return list, count
end

local STAR, ANY, OPEN, CLOSE, BANG, DASH = byte('*'), byte('?'), byte('['), byte(']'), byte('!'), byte('-')

-- The end of the set that opens at `place`; nil: the bracket stands for itself.
local function set_end(pattern, length, place)
  local last = place + 1
  if pattern[last] == BANG then
    last = last + 1
  end
  if pattern[last] == CLOSE then
    last = last + 1
  end
  while last <= length and pattern[last] ~= CLOSE do
    last = last + 1
  end
  return last <= length and last or nil
end

local function in_set(pattern, place, last, code)
  local negated = pattern[place + 1] == BANG
  local at, found = place + (negated and 2 or 1), false
  while at < last do
    if pattern[at + 1] == DASH and at + 2 < last then
      found = found or (pattern[at] <= code and code <= pattern[at + 2])
      at = at + 3
    else
      found = found or pattern[at] == code
      at = at + 1
    end
  end
  return found ~= negated
end

-- As tags are matched: * any run, ? one character, [abc] [a-z] [!a] one of them or none. The whole text, case counts.
function glob(pattern, text)
  local p, plen = characters(text_of(pattern, 'glob', 1))
  local t, tlen = characters(text_of(text, 'glob', 2))
  local pi, ti, star, mark = 1, 1, nil, 1
  while ti <= tlen do
    local code, step = p[pi], nil
    if code == STAR then
      star, mark = pi, ti
      pi = pi + 1
    else
      local last = code == OPEN and set_end(p, plen, pi)
      if last then
        step = in_set(p, pi, last, t[ti]) and last + 1
      elseif code == ANY or code == t[ti] then
        step = pi + 1
      end
      if step then
        pi, ti = step, ti + 1
      elseif star then
        mark = mark + 1
        pi, ti = star + 1, mark
      else
        return false
      end
    end
  end
  while p[pi] == STAR do
    pi = pi + 1
  end
  return pi > plen
end

-- The same whole number below 2^53 for the same text, on every worker, in every version: FNV-1a, then mixed.
function hash(text)
  text = text_of(text, 'hash', 1)
  local h = 0xcbf29ce484222325
  for place = 1, #text do
    h = (h ~ byte(text, place)) * 0x100000001b3
  end
  h = (h ~ (h >> 33)) * 0xff51afd7ed558ccd
  h = (h ~ (h >> 33)) * 0xc4ceb9fe1a85ec53
  return (h ~ (h >> 33)) >> 11
end

local names = {} -- live actions here by the name of their task, for the call that runs

-- Live actions of that name on this worker.
function count(name)
  return names[text_of(name, 'count', 1)] or 0
end

-- What comes out ----------------------------------------------------------------------------------------------------------

local function clean(text)
  if #text > error_bytes_max then
    text = sub(text, 1, error_bytes_max)
  end
  return utf8_len(text) and text or (gsub(text, '[\128-\255]', '?'))
end

local function describe(problem)
  local kind = type(problem)
  if kind == 'string' then
    return clean(problem)
  elseif kind == 'number' then
    return tostring(problem)
  end
  return 'raised ' .. (kind == 'nil' and 'nothing' or 'a ' .. kind .. ' that is no text')
end

local ESCAPES = { ['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\t'] = '\\t' }

local function escaped(character)
  return ESCAPES[character] or format('\\u%04x', byte(character))
end

-- Writes plain data as JSON into `out`, or raises what is wrong with it as a table {text}.
local function writer(bytes_max)
  local out, parts, left, open = {}, 0, bytes_max, {}

  local function put(text)
    left = left - #text
    if left < 0 then
      error({ format('is longer than %d bytes', bytes_max) }, 0)
    end
    parts = parts + 1
    out[parts] = text
  end

  local function text(value)
    if #value > left then
      error({ format('is longer than %d bytes', bytes_max) }, 0)
    elseif not utf8_len(value) then
      error({ 'holds text that is no UTF-8' }, 0)
    end
    put('"' .. gsub(value, '[%c"\\]', escaped) .. '"')
  end

  local function number(value)
    if math_type(value) == 'integer' then
      put(format('%d', value))
    elseif value ~= value or value == huge or value == -huge then
      error({ 'holds a number that is not finite' }, 0)
    elseif floor(value) == value and value > -2 ^ 53 and value < 2 ^ 53 then
      put(format('%.0f', value))
    else
      put(format('%.17g', value))
    end
  end

  local any

  local function list(value)
    put('[')
    for place = 1, rawlen(value) do
      if place > 1 then
        put(',')
      end
      any(rawget(value, place))
    end
    put(']')
  end

  local function object(value)
    local keys = {}
    for key in next, value do
      if type(key) ~= 'string' then
        error({ format('holds a table with a %s as key among others; names or 1 to n', type(key)) }, 0)
      elseif #keys * 4 > left then -- each is written with its quotes, colon and value
        error({ format('is longer than %d bytes', bytes_max) }, 0)
      end
      keys[#keys + 1] = key
    end
    sort(keys)
    put('{')
    for place = 1, #keys do
      if place > 1 then
        put(',')
      end
      text(keys[place])
      put(':')
      any(rawget(value, keys[place]))
    end
    put('}')
  end

  local depth = 0

  local function is_list(value)
    local length, seen = rawlen(value), 0
    for key in next, value do
      if math_type(key) ~= 'integer' or key < 1 or key > length then
        return false
      end
      seen = seen + 1
    end
    return length > 0 and seen == length
  end

  function any(value)
    local kind = type(value)
    if kind == 'table' then
      if open[value] then
        error({ 'holds a table that holds itself' }, 0)
      elseif depth >= depth_max then
        error({ format('is deeper than %d tables', depth_max) }, 0)
      end
      open[value], depth = true, depth + 1
      if depth > 1 and is_list(value) then
        list(value)
      else
        object(value)
      end
      open[value], depth = nil, depth - 1
    elseif kind == 'string' then
      text(value)
    elseif kind == 'number' then
      number(value)
    elseif kind == 'boolean' then
      put(value and 'true' or 'false')
    else
      error({ 'holds a ' .. kind }, 0)
    end
  end

  return function(value)
    any(value)
    return concat(out)
  end
end

-- What the process calls --------------------------------------------------------------------------------------------------

local subject -- the function that the source gave

-- As a chunk, and as an expression: the message of why it does not compile, or nil.
local function compiles(source, as_expression)
  local chunk, message = load((as_expression and 'return ' or '') .. source, '=policy', 't')
  return not chunk and clean(message) or nil
end

-- Find the one function of a source that compiles: true, or nothing and why not.
local function settle(source, as_expression)
  local chunk, message = load((as_expression and 'return ' or '') .. source, '=policy', 't')
  if not chunk then
    return false, clean(message)
  end
  local before = {}
  for name, value in next, _G do
    before[name] = value
  end
  local ok, value = pcall(chunk)
  if not ok then
    return false, describe(value)
  elseif type(value) == 'function' then
    subject = value
    return true
  elseif value ~= nil then
    return false, 'gives a ' .. type(value) .. ', not a function'
  end
  local found, name_found
  for name, assigned in next, _G do
    if type(assigned) == 'function' and before[name] ~= assigned then
      if found then
        return false, 'assigns more than one global function; return the one that is meant'
      end
      found, name_found = assigned, name
    end
  end
  if not found then
    return false, 'gives no function'
  end
  subject = found
  return true
end

local function look(state)
  local worker = state.worker
  local actions = worker and worker.actions
  names = {}
  for name, number in next, actions and actions.name or {} do
    names[name] = number
  end
end

-- Returns a word, the score, a text.
local function judge(state, task)
  look(state)
  local ok, value = pcall(subject, state, task)
  if not ok then
    return 'failed', 0, describe(value)
  elseif value == true then
    return 'bid', 1, ''
  elseif value == false or value == nil then
    return 'no_bid', 0, ''
  elseif type(value) ~= 'number' then
    return 'failed', 0, 'answered a ' .. type(value) .. ', neither number nor boolean'
  elseif value ~= value or value == huge or value == -huge then
    return 'failed', 0, 'answered a number that is not finite'
  end
  return 'bid', value, ''
end

-- Returns JSON, or false and why not.
local function announce(state, task, action, bytes_max)
  look(state)
  local ok, value = pcall(subject, state, task, action)
  if not ok then
    return false, describe(value)
  elseif type(value) ~= 'table' then
    return false, 'answered ' .. (value == nil and 'nothing' or 'a ' .. type(value)) .. ', not a table'
  end
  local written, text = pcall(writer(bytes_max), value)
  if not written then
    return false, type(text) == 'table' and 'the table ' .. text[1] or describe(text)
  end
  return text
end

return compiles, settle, judge, announce
